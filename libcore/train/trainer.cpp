#include "libcore/train/trainer.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "libcore/base/error.h"
#include "libcore/base/hash.h"
#include "libcore/base/units.h"
#include "libcore/comm/agree.h"
#include "libcore/train/lr_schedule.h"
#include "libcore/train/signals.h"
#include "libcore/train/trainer_run.h"

namespace rw {

ReadSamples Trainer::reader() {
  return [this](int64_t first, int64_t n, int32_t* ids, int32_t* targets) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < n; ++i) {
      const uint64_t digest = order_->read(first + i, ids + i * spec_.seq_len, targets + i * spec_.seq_len);
      const uint64_t at_sample[2] = {digest, static_cast<uint64_t>(first + i)};
      sum += hash64(at_sample, sizeof at_sample);
    }
    return sum;
  };
}

StepInputs Trainer::step_inputs() {
  return {.first_sample = state_.samples,
          .lr = lr_at(spec_, peak_lr_, state_.step + 1),
          .loss_scale = loss_scale_ ? static_cast<double>(loss_scale_->scale()) : 1.0,
          .stop_asked = stop_signal() != 0,
          .allow =
              [this](double loss, double grad_norm) {
                guard_report_ = guard_->observe(state_.step + 1, loss, grad_norm);
                return guard_report_->action == GuardAction::go_on || guard_report_->action == GuardAction::warn;
              },
          .before_update = [this] { finish_staging(); },
          .votes = saver_->votes()};
}

void Trainer::draw_step(const StepTrace& trace) {
  const std::vector<std::string> texts = trace.collect(watched_world());
  if (!first_rank()) return;
  const std::filesystem::path file = std::filesystem::path(spec_.out) / "trace.json";
  try {
    if (!trace_file_) trace_file_ = std::make_unique<ChromeTrace>(file, "rank 0 on " + comm_record_->host);
    if (!draw_traces(*trace_file_, texts, start_s_)) fail(ErrorKind::runtime, "{}: the disk is full", file.string());
  } catch (const Error& e) {
    warn(fmt::format("step {} is not drawn: {}", state_.step + 1, e.what()));
  }
}

StepResult Trainer::train_step(StepInputs inputs) {
  sampled_step_ = comm_record_->step = state_.step + 1;
  counted_ = comm_record_->counts;
  exposed_before_ = comm_record_->exposed_s;
  total_before_ = comm_record_->total_s;
  guard_report_.reset();
  scale_used_ = inputs.loss_scale;
  std::optional<StepTrace> trace;
  if (traced_.holds(state_.step + 1)) {
    watched_world().barrier();  // from here on the hosts' clocks are counted
    trace.emplace(*comm_record_);
    inputs.trace = &*trace;
  }
  clock_.start();
  const StepResult result = step_->run(inputs, reader(), clock_);
  if (trace) draw_step(*trace);
  if (!result.finite) guard_->observe(state_.step + 1, result.loss, result.grad_norm);
  // In f16 a finite loss with gradients that are not is the scale's doing, and the scale's business.
  update_overflowed_ = loss_scale_ && !result.finite && std::isfinite(result.loss) &&
                       static_cast<double>(loss_scale_->scale()) > LossScale::kFloor;
  if (loss_scale_) loss_scale_->observe(!result.finite);
  ++state_.step;
  ++steps_run_;
  state_.samples += spec_.global_batch;
  state_.tokens += result.valid_tokens;
  state_.updates = step_->optimizer().steps_taken();
  skips_in_a_row_ = result.finite || update_overflowed_ ? 0 : skips_in_a_row_ + 1;
  if (!result.updated) ++state_.skipped;
  must_differ_ = must_differ_ || (result.updated && inputs.lr > 0 && result.grad_norm > 0);
  return result;
}

void Trainer::validate() {
  if (validation_->empty() || last_validated_ == state_.step) return;
  const double start = now_s();
  last_validation_ = validation_->run(*step_);
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

TrainSummary Trainer::summary(bool interrupted) const {
  const double tokens = static_cast<double>(steps_run_ * spec_.global_batch * spec_.seq_len);
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
  result["mfu"] = {
      {"full", flops_.full * tokens_per_s / peak},
      {"causal", flops_.causal * tokens_per_s / peak},
      {"hardware", train_s_ > 0 ? hardware_flops_ * static_cast<double>(steps_run_) / train_s_ / peak : 0}};
  result["skipped"] = state_.skipped;
  result["train_s"] = train_s_;
  result["wall_s"] = now_s() - start_s_;
  result["checkpoint_step"] = saved_step_;
  result["checkpoint_stall_s"] = stall_s_;
  result["checkpoint_stall_share"] = train_s_ > 0 ? stall_s_ / (train_s_ + stall_s_) : 0;
  result["interrupted"] = interrupted;
  if (!predicted_->empty() && steps_run_ > 0) {
    result["prediction"] = predicted_->beside(static_cast<double>(most_planned_bytes_));
    note(PredictedStep::text(result["prediction"]));
  }
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
  start();
  if (spec_.verify_parallel > 0) parallel_check_.emplace(step_settings(spec_, model_, layout_), *step_, threads_);
  bool stop = false;
  while (state_.step < spec_.steps && !stop) {
    const StepInputs inputs = step_inputs();
    const StepResult result = train_step(inputs);
    record_step(result);
    heed(saver_->advance(result.votes));
    if (parallel_check_) verify_parallel(inputs, result);
    if (!result.finite && !update_overflowed_ && spec_.nan_trace) trace_nan();
    stop = result.stop && state_.step < spec_.steps;
    if (guard_report_ && guard_report_->action == GuardAction::rewind && rewind()) {
      parallel_check_.reset();  // its single rank went on
      continue;
    }
    if (spec_.check_replicas_every > 0 && state_.step % spec_.check_replicas_every == 0) check_replicas();
    if (skips_in_a_row_ >= spec_.max_skips) give_up();
    if (stop) break;
    if (spec_.eval_every > 0 && state_.step % spec_.eval_every == 0) validate();
    save_if_due();
  }
  if (skips_in_a_row_ > 0) give_up();
  if (state_.step == first_step_)
    warn(fmt::format("nothing to do: the run is at step {} and --steps is {}", state_.step, spec_.steps));
  const bool saved = save_last();
  if (!saved && stop)
    throw SharedError(ErrorKind::runtime,
                      fmt::format("stopped by a signal at step {} and could not save", state_.step));
  if (!saved)
    throw SharedError(ErrorKind::runtime,
                      fmt::format("trained to step {} but could not save the last checkpoint", state_.step));
  if (!stop) validate();
  event(stop ? "interrupted" : "end", {{"loss", json_or_null(last_loss_)}});
  return summary(stop);
}

std::string Trainer::watchdog_report(const std::string& error) {
  if (!comm_record_ || spec_.out.empty()) return "";
  const std::filesystem::path dir = std::filesystem::path(spec_.out) / "watchdog";
  write_watchdog(*comm_record_, dir);
  event("failed", {{"error", error}});
  // Ranks that wait for the same one give up at about the same time: their files are worth a moment.
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  for (int r = 0; r < world_.rank(); ++r)
    if (std::filesystem::exists(dir / fmt::format("rank-{}.jsonl", r))) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1500));  // that one speaks; whoever ends first ends all
      return "";
    }
  return watchdog_verdict(dir, world_.size());
}

TrainSummary train(const TrainSpec& spec, Comm& world, const TrainObserver& observer) {
  Trainer trainer(spec, world, observer);
  try {
    return trainer.run();
  } catch (const SharedError&) {
    throw;
  } catch (const Error& e) {
    if (world.size() == 1) throw;
    const std::string verdict = trainer.watchdog_report(e.what());
    if (verdict.empty()) throw;
    throw Error(e.kind(), fmt::format("{}\n{}", e.what(), verdict));
  }
}

}  // namespace rw
