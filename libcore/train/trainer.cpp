#include "libcore/train/trainer.h"

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/base/hash.h"
#include "libcore/base/units.h"
#include "libcore/ckpt/model_source.h"
#include "libcore/comm/agree.h"
#include "libcore/data/duplicates.h"
#include "libcore/telemetry/json_lines.h"
#include "libcore/text/tokenizer.h"
#include "libcore/train/lr_schedule.h"
#include "libcore/train/run_dir.h"
#include "libcore/train/setup.h"
#include "libcore/train/signals.h"
#include "libcore/train/step.h"
#include "libcore/train/train_state.h"
#include "libcore/train/validation.h"

namespace rw {
namespace {

constexpr double kPeakMeasureS = 0.3;

// JSON has no NaN and no infinity.
Json json_or_null(double v) { return std::isfinite(v) ? Json(v) : Json(nullptr); }

class Trainer {
 public:
  Trainer(const TrainSpec& spec, Comm& world, const TrainObserver& observer)
      : spec_(spec), world_(world), observer_(observer) {}
  TrainSummary run();

 private:
  bool first_rank() const { return world_.rank() == 0; }
  void note(const std::string& line) const {
    if (first_rank()) observer_.note(line);
  }
  void warn(const std::string& line) const {
    if (first_rank()) observer_.warning(line);
  }
  // Runs a part of the set-up on all ranks, reports its time, and makes one rank's error everybody's.
  void phase(const std::string& name, const std::function<void()>& body);
  void event(const char* kind, Json details);

  void open_inputs();
  void plan_memory();
  void load_weights();
  void measure_peak();
  void start_run_dir();

  StepResult train_step();
  void record_step(const StepResult& result);
  void validate();
  [[noreturn]] void give_up();
  bool save();
  TrainSummary summary(bool interrupted) const;

  TrainSpec spec_;
  Comm& world_;
  const TrainObserver& observer_;
  double start_s_ = now_s();

  ModelSpec model_;
  std::unique_ptr<TensorSource> init_weights_;
  ResumePlan resume_;
  TrainData data_;
  std::unique_ptr<DataOrder> order_;
  Arena arena_;
  std::unique_ptr<TrainStep> step_;
  std::optional<Validation> validation_;
  TrainState state_;
  Json identity_;
  FileLock lock_;
  JsonLines metrics_, events_;
  StepClock clock_;
  ModelFlops flops_{};
  int threads_ = 1;
  double peak_flops_ = 0, peak_lr_ = 0, last_save_s_ = 0, train_s_ = 0;
  int64_t first_step_ = 0, start_rss_ = 0, saved_step_ = -1, failed_save_step_ = -1, skips_in_a_row_ = 0,
          last_validated_ = -1, last_bytes_ = 0;
  double last_loss_ = std::nan("");  // until a step has run
  ValidationResult last_validation_;
  bool metrics_full_ = false;
  std::string peak_source_, run_id_, init_tokenizer_;
};

void Trainer::phase(const std::string& name, const std::function<void()>& body) {
  const double start = now_s();
  agree(world_, body);
  if (first_rank()) observer_.phase(name, now_s() - start);
}

void Trainer::event(const char* kind, Json details) {
  Json line = {{"event", kind}, {"time", utc_timestamp()}, {"run_id", identity_["run_id"]}, {"step", state_.step}};
  line.update(details);
  events_.write(line);
}

void Trainer::open_inputs() {
  check_train_spec(spec_);
  if (!spec_.init_from.empty()) {
    ModelSource source = open_model_source(spec_.init_from);
    init_weights_ = std::move(source.weights);
    init_tokenizer_ = source.tokenizer_json;
    model_ = source.spec;
  }
  if (!spec_.model.empty()) {
    const ModelSpec named = load_model_spec(spec_.model);
    if (init_weights_ != nullptr && model_identity(named) != model_identity(model_))
      fail(ErrorKind::usage, "--model {} is not the model of --init-from {}; leave --model out to take it from there",
           spec_.model, spec_.init_from);
    model_ = named;
  }
  settle_batch(spec_, model_, world_.size());
  data_ = open_data(spec_, model_);
  if (!init_tokenizer_.empty()) {
    const std::string theirs = parse_tokenizer(init_tokenizer_, spec_.init_from)->identity();
    if (theirs != data_.files[0]->tokenizer_identity())
      warn(
          fmt::format("--init-from {} was trained with tokenizer {}, the data was prepared with {}: unless these are "
                      "the same tokens its weights mean nothing here",
                      spec_.init_from, theirs, data_.files[0]->tokenizer_identity()));
  }
  order_ = std::make_unique<DataOrder>(data_.parts, spec_.seq_len, static_cast<uint64_t>(spec_.seed));
  resume_ = plan_resume(spec_);
  for (const std::string& line : resume_.notes) warn(line);
  if (resume_.checkpoint != nullptr) {
    state_ = parse_state(resume_.checkpoint->state(), resume_.checkpoint->where());
    for (const std::string& line : check_resume(*resume_.checkpoint, state_, spec_, model_, data_)) warn(line);
    first_step_ = state_.step;
    saved_step_ = state_.step;
  }
  state_.seq_len = spec_.seq_len;
  state_.seed = spec_.seed;
  state_.global_batch = spec_.global_batch;
  state_.data_fingerprint = data_.fingerprint;
  if (spec_.verify_data) {
    for (const auto& file : data_.files) {
      if (!file->verify())
        fail(ErrorKind::input, "{}: its tokens do not match the recorded fingerprint {}; prepare it again",
             file->path().string(), file->fingerprint());
      note(duplicates_text(find_duplicates(*file, 5)));
    }
  }
}

void Trainer::plan_memory() {
  start_rss_ = resident_bytes();
  threads_ = threads_per_rank(spec_, world_);
  if (const int idle = idle_cores(threads_, world_); spec_.threads == 0 && idle > 0)
    warn(
        fmt::format("{} cores of this host are left out because mpirun binds its ranks; give it --bind-to none or "
                    "--map-by slot:PE=N",
                    idle));
  const StepSettings settings{.spec = model_,
                              .seq_len = spec_.seq_len,
                              .micro_batch = spec_.micro_batch,
                              .global_batch = spec_.global_batch,
                              .adam = {.beta1 = static_cast<float>(spec_.beta1),
                                       .beta2 = static_cast<float>(spec_.beta2),
                                       .eps = static_cast<float>(spec_.eps),
                                       .weight_decay = static_cast<float>(spec_.weight_decay)},
                              .clip_norm = spec_.clip_norm};
  const Exec exec{
      .ops = this_cpu_ops(), .stream = {.threads = threads_}, .t = spec_.precision == "f32" ? DType::f32 : DType::bf16};
  step_ = std::make_unique<TrainStep>(settings, exec, world_, arena_);
  if (spec_.val_fraction > 0 && data_.validation.empty())
    warn(fmt::format("--val-fraction {} holds out no token of this data: there is no validation", spec_.val_fraction));
  validation_.emplace(data_.validation, spec_.seq_len, spec_.micro_batch);
  flops_ = training_flops_per_token(model_, spec_.seq_len);
  peak_lr_ = batch_scaled_lr(spec_, spec_.global_batch);
}

void Trainer::load_weights() {
  if (resume_.checkpoint != nullptr) {
    load_params(*step_, *resume_.checkpoint, Load::weights_and_moments);
    step_->optimizer().set_steps_taken(state_.updates);
    note(fmt::format("resumed {} at step {}", resume_.checkpoint->where(), state_.step));
  } else if (init_weights_ != nullptr) {
    load_params(*step_, *init_weights_, Load::weights);
  } else {
    init_params(step_->layout(), step_->params(), static_cast<uint64_t>(spec_.seed));
    step_->refresh_weights();
  }
  resume_.checkpoint.reset();
  init_weights_.reset();
}

void Trainer::measure_peak() {
  const DType t = spec_.precision == "f32" ? DType::f32 : DType::bf16;
  const char* instruction = "given by --peak-flops";
  const double mine = spec_.peak_flops > 0 ? spec_.peak_flops
                                           : measure_peak_flops(t, {.threads = threads_}, kPeakMeasureS, &instruction);
  peak_source_ = instruction;
  peak_flops_ = mine;
}

void Trainer::start_run_dir() {
  const std::filesystem::path out = spec_.out;
  identity_ = run_identity(spec_, model_, data_, world_, run_id_);
  identity_["tokenizer_json"] = data_.files[0]->tokenizer_json();
  identity_["peak_flops_per_rank"] = peak_flops_;
  identity_["peak_flops_source"] = peak_source_;
  identity_["threads_per_rank"] = threads_;
  identity_["backend"] = cpu_ops().name;
  identity_["params"] = n_params(model_);
  if (!first_rank()) return;
  Json run = identity_;
  run.erase("tokenizer_json");
  lock_ = lock_run(out);
  write_run_json(out, run);
  drop_lines_after(out / "metrics.jsonl", state_.step);
  metrics_ = JsonLines(out / "metrics.jsonl");
  events_ = JsonLines(out / "events.jsonl");
  event(first_step_ > 0 ? "resume" : "start", {{"ranks", world_.size()}, {"samples", state_.samples}});
}

StepResult Trainer::train_step() {
  const ReadSamples read = [&](int64_t first, int64_t n, int32_t* ids, int32_t* targets) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < n; ++i) {
      const uint64_t digest = order_->read(first + i, ids + i * spec_.seq_len, targets + i * spec_.seq_len);
      const uint64_t at_sample[2] = {digest, static_cast<uint64_t>(first + i)};
      sum += hash64(at_sample, sizeof at_sample);
    }
    return sum;
  };
  clock_.start();
  const double lr = lr_at(spec_, peak_lr_, state_.step + 1);
  const StepResult result = step_->run(state_.samples, lr, read, stop_signal() != 0, clock_);
  ++state_.step;
  state_.samples += spec_.global_batch;
  state_.tokens += result.valid_tokens;
  state_.updates = step_->optimizer().steps_taken();
  skips_in_a_row_ = result.skipped ? skips_in_a_row_ + 1 : 0;
  if (result.skipped) ++state_.skipped;
  return result;
}

void Trainer::record_step(const StepResult& result) {
  last_loss_ = result.loss;
  train_s_ += clock_.total();
  if (!first_rank()) return;
  const double lr = lr_at(spec_, peak_lr_, state_.step);
  const double seconds = clock_.total();
  const double tokens_per_s = static_cast<double>(spec_.global_batch * spec_.seq_len) / seconds;
  const double peak = peak_flops_ * world_.size();
  const double full = flops_.full * tokens_per_s / peak, causal = flops_.causal * tokens_per_s / peak;
  Json times = Json::object(), memory = Json::object();
  for (int c = 0; c < static_cast<int>(TimeCategory::n_categories); ++c) {
    const auto category = static_cast<TimeCategory>(c);
    times[time_category_name(category)] =
        category == TimeCategory::checkpoint ? last_save_s_ : clock_.seconds(category);
  }
  last_save_s_ = 0;
  for (int o = 0; o < static_cast<int>(MemoryOwner::n_owners); ++o)
    if (const auto owner = static_cast<MemoryOwner>(o); arena_.bytes(owner) > 0)
      memory[memory_owner_name(owner)] = arena_.bytes(owner);
  memory["planned"] = arena_.total_bytes();
  memory["outside_arena"] = resident_bytes() - start_rss_ - arena_.total_bytes();
  const Json loss = json_or_null(result.loss), norm = json_or_null(result.grad_norm);
  const bool written =
      metrics_.write({{"step", state_.step},
                      {"loss", loss},
                      {"lr", lr},
                      {"grad_norm", norm},
                      {"tokens", state_.tokens},
                      {"samples", state_.samples},
                      {"step_s", seconds},
                      {"tokens_per_s", tokens_per_s},
                      {"model_flops", flops_.causal * static_cast<double>(spec_.global_batch * spec_.seq_len)},
                      {"mfu", {{"full", full}, {"causal", causal}, {"hardware", causal}}},
                      {"seconds", times},
                      {"memory_bytes", memory},
                      {"batch_fingerprint", hex64(result.fingerprint)},
                      {"skipped", result.skipped},
                      {"skipped_total", state_.skipped}});
  if (!written && !metrics_full_) {
    metrics_full_ = true;
    warn(fmt::format(
        "step {}: {}/metrics.jsonl cannot be written (is the disk full?); training goes on without these lines",
        state_.step, spec_.out));
  }
  if (result.skipped) {
    event("skip", {{"loss", loss}, {"grad_norm", norm}, {"batch_fingerprint", hex64(result.fingerprint)}});
    observer_.warning(
        fmt::format("step {}: loss or gradient is not finite; the update was skipped on all ranks ({} so far)",
                    state_.step, state_.skipped));
  }
  observer_.step({.step = state_.step,
                  .steps = spec_.steps,
                  .loss = result.loss,
                  .lr = lr,
                  .grad_norm = result.grad_norm,
                  .tokens_per_s = tokens_per_s,
                  .mfu_causal = causal});
}

void Trainer::validate() {
  if (validation_->empty() || last_validated_ == state_.step) return;
  const double start = now_s();
  last_validation_ = validation_->run(*step_, world_);
  last_validated_ = state_.step;
  if (!first_rank()) return;
  event("validation", {{"val_loss", last_validation_.loss},
                       {"val_loss_per_byte", last_validation_.loss_per_byte},
                       {"val_tokens", last_validation_.tokens},
                       {"seconds", now_s() - start}});
  observer_.note(fmt::format("step {}: validation loss {:.4f} nats/token, {:.4f} nats/byte ({} tokens, {:.1f} s)",
                             state_.step, last_validation_.loss, last_validation_.loss_per_byte,
                             last_validation_.tokens, now_s() - start));
}

// Saves unless this step is saved already. A failed save leaves the previous checkpoint and says so.
bool Trainer::save() {
  if (saved_step_ == state_.step || failed_save_step_ == state_.step) return saved_step_ == state_.step;
  if (skips_in_a_row_ > 0) {
    warn(fmt::format("step {}: no checkpoint is saved while steps are skipped", state_.step));
    return true;
  }
  try {
    const std::vector<TensorPiece> pieces = checkpoint_pieces(*step_, world_.rank(), world_.size());
    const SaveReport report =
        save_checkpoint(checkpoints_dir(spec_), state_.step, pieces, identity_, state_json(state_), world_);
    last_save_s_ = report.seconds;
    last_bytes_ = report.bytes;
    saved_step_ = state_.step;
    event("checkpoint", {{"seconds", report.seconds}, {"bytes", report.bytes}});
    if (first_rank()) prune_checkpoints(checkpoints_dir(spec_), spec_.keep_last, spec_.keep_every);
    note(fmt::format("step {}: checkpoint saved, {} in {}", state_.step,
                     format_bytes(static_cast<double>(report.bytes)), format_seconds(report.seconds)));
    return true;
  } catch (const Error& e) {
    failed_save_step_ = state_.step;
    event("checkpoint_failed", {{"error", e.what()}});
    warn(fmt::format(
        "step {}: no checkpoint was saved: {}; {}", state_.step, e.what(),
        saved_step_ > 0 ? fmt::format("the one of step {} stands", saved_step_) : std::string("there is none yet")));
    return false;
  }
}

TrainSummary Trainer::summary(bool interrupted) const {
  const double tokens = static_cast<double>((state_.step - first_step_) * spec_.global_batch * spec_.seq_len);
  const double tokens_per_s = train_s_ > 0 ? tokens / train_s_ : 0;
  const double peak = peak_flops_ * world_.size();
  Json result = {{"run_id", identity_["run_id"]},
                 {"out", spec_.out},
                 {"steps", state_.step},
                 {"params", n_params(model_)},
                 {"loss", json_or_null(last_loss_)}};
  if (last_validated_ >= 0) {
    result["val_loss"] = last_validation_.loss;
    if (last_validation_.loss_per_byte > 0) result["val_loss_per_byte"] = last_validation_.loss_per_byte;
  }
  result["tokens"] = state_.tokens;
  result["tokens_per_s"] = tokens_per_s;
  result["mfu"] = {{"full", flops_.full * tokens_per_s / peak},
                   {"causal", flops_.causal * tokens_per_s / peak},
                   {"hardware", flops_.causal * tokens_per_s / peak}};
  result["skipped"] = state_.skipped;
  result["train_s"] = train_s_;
  result["wall_s"] = now_s() - start_s_;
  result["checkpoint_step"] = saved_step_;
  result["interrupted"] = interrupted;
  return {.json = result.dump(), .interrupted = interrupted};
}

// Weights that give no finite step are not worth a checkpoint: the last good one stands.
void Trainer::give_up() {
  event("failed", {{"skips_in_a_row", skips_in_a_row_}});
  throw SharedError(ErrorKind::runtime,
                    fmt::format("the last {} steps up to {} had a loss or gradient that is not finite; {}; use a "
                                "smaller --lr or look at the data of these steps",
                                skips_in_a_row_, state_.step,
                                saved_step_ >= 0 ? fmt::format("the checkpoint of step {} stands", saved_step_)
                                                 : std::string("no checkpoint was saved")));
}

TrainSummary Trainer::run() {
  catch_stop_signals();  // a signal during the start ends the run after its first step
  world_.set_timeout(spec_.comm_timeout);
  phase("model and data", [&] { open_inputs(); });
  phase("memory", [&] { plan_memory(); });
  phase("weights", [&] { load_weights(); });
  phase("machine peak", [&] { measure_peak(); });
  peak_flops_ = world_.all_reduce_value(peak_flops_, ReduceOp::sum) / world_.size();
  agree(world_, [&] { run_id_ = first_rank() ? run_id_of(spec_.out) : ""; });
  run_id_ = world_.broadcast_text(run_id_, 0);
  phase("run directory", [&] { start_run_dir(); });
  note(fmt::format("{} parameters, {} ranks x {} threads, {}, {}; peak {} FLOP/s a rank ({}); {} planned a rank",
                   format_count(static_cast<double>(n_params(model_))), world_.size(), threads_, cpu_ops().name,
                   spec_.precision, format_count(peak_flops_), peak_source_,
                   format_bytes(static_cast<double>(arena_.total_bytes()))));
  bool stop = false;
  while (state_.step < spec_.steps && !stop) {
    const StepResult result = train_step();
    record_step(result);
    if (skips_in_a_row_ >= spec_.max_skips) give_up();
    stop = result.stop && state_.step < spec_.steps;
    if (stop) break;
    if (spec_.eval_every > 0 && state_.step % spec_.eval_every == 0) validate();
    if (spec_.checkpoint_every > 0 && state_.step % spec_.checkpoint_every == 0) save();
  }
  if (!stop) validate();
  if (skips_in_a_row_ > 0) give_up();
  if (state_.step == first_step_)
    warn(fmt::format("nothing to do: the run is at step {} and --steps is {}", state_.step, spec_.steps));
  const bool saved = save();
  if (!saved && stop)
    throw SharedError(ErrorKind::runtime,
                      fmt::format("stopped by a signal at step {} and could not save", state_.step));
  if (!saved)
    throw SharedError(ErrorKind::runtime,
                      fmt::format("trained to step {} but could not save the last checkpoint", state_.step));
  event(stop ? "interrupted" : "end", {{"loss", json_or_null(last_loss_)}});
  return summary(stop);
}

}  // namespace

TrainSummary train(const TrainSpec& spec, Comm& world, const TrainObserver& observer) {
  return Trainer(spec, world, observer).run();
}

}  // namespace rw
