// What a step leaves behind: its metrics line, and what was noticed about it.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/base/hash.h"
#include "libcore/base/units.h"
#include "libcore/comm/agree.h"
#include "libcore/train/lr_schedule.h"
#include "libcore/train/replica_check.h"
#include "libcore/train/trainer_run.h"

namespace rw {

namespace {

// The first parameter that this rank holds values of that are not finite; "" when there is none.
std::string bad_weight(TrainStep& step) {
  const auto bad = [](const float* x, int64_t n) {
    return std::any_of(x, x + n, [](float v) { return !std::isfinite(v); });
  };
  if (step.weights().sharded()) {
    for (const ShardPiece& piece : step.shards().own_pieces())
      if (bad(step.weights().at(piece), piece.n)) return step.layout().params()[piece.param].name;
  } else {
    for (const LocalParam& p : step.layout().params())
      if (bad(step.weights().masters() + p.slice.offset, p.slice.n)) return p.name;
  }
  return "";
}

}  // namespace

Json json_or_null(double v) { return std::isfinite(v) ? Json(v) : Json(nullptr); }

void Trainer::event(const char* kind, Json details) {
  Json line = {{"event", kind}, {"time", utc_timestamp()}, {"run_id", identity_["run_id"]}, {"step", state_.step}};
  line.update(details);
  if (prometheus_) prometheus_->add_event(line);
  events_.write(line);
}

Json Trainer::metrics_line(const StepResult& result) const {
  const double seconds = clock_.total();
  const double tokens = static_cast<double>(spec_.global_batch * spec_.seq_len), tokens_per_s = tokens / seconds;
  const double peak = peak_flops_ * world_.size();
  const double full = flops_.full * tokens_per_s / peak, causal = flops_.causal * tokens_per_s / peak;
  Json times = Json::object(), memory = Json::object(), calls = Json::object(), bytes = Json::object();
  for (int c = 0; c < static_cast<int>(TimeCategory::n_categories); ++c) {
    const auto category = static_cast<TimeCategory>(c);
    times[time_category_name(category)] =
        category == TimeCategory::checkpoint ? step_stall_s_ : clock_.seconds(category);
  }
  for (int o = 0; o < static_cast<int>(MemoryOwner::n_owners); ++o)
    if (const auto owner = static_cast<MemoryOwner>(o); arena_->bytes(owner) > 0)
      memory[memory_owner_name(owner)] = arena_->bytes(owner);
  memory["planned"] = arena_->total_bytes();
  // What the process grew by beyond the plan: at its peak, what it maps of the other ranks on this host left out.
  int64_t mapped = world_.mapped_bytes();
  const Mesh& m = *mesh_;
  for (const auto* comm : {&m.world, &m.tp, &m.dp, &m.pp_forward, &m.pp_backward, &m.shard, &m.replica, &m.kv, &m.ends})
    mapped += (*comm)->mapped_bytes();
  memory["mapped"] = mapped;
  const int64_t staging = saver_->pool_bytes();
  if (staging > 0) memory["checkpoint_staging"] = staging;
  const int64_t planned_here = device_->memory() == nullptr ? arena_->total_bytes() : 0;
  memory["outside_arena"] = peak_resident_bytes() - start_rss_ - planned_here - staging;
  for (const auto& [key, count] : comm_record_->counts) {
    const auto before = counted_.find(key);
    const CommCount then = before == counted_.end() ? CommCount{} : before->second;
    const std::string name = key.first + "." + comm_kind_name(key.second);
    if (count.calls > then.calls) calls[name] = count.calls - then.calls, bytes[name] = count.bytes - then.bytes;
  }
  // Of rank 0: seconds in which it did nothing but communicate or wait; what it was part of, by group.
  const Json communication = {{"exposed_s", comm_record_->exposed_s - exposed_before_},
                              {"total_s", comm_record_->total_s - total_before_},
                              {"calls", calls},
                              {"bytes", bytes}};
  Json line = {{"step", state_.step},
               {"loss", json_or_null(result.loss)},
               {"lr", lr_at(spec_, peak_lr_, state_.step)},
               {"grad_norm", json_or_null(result.grad_norm)},
               {"tokens", state_.tokens},
               {"samples", state_.samples},
               {"step_s", seconds},
               {"tokens_per_s", tokens_per_s},
               {"model_flops", flops_.causal * tokens},
               {"mfu", {{"full", full}, {"causal", causal}, {"hardware", hardware_flops_ / seconds / peak}}},
               {"seconds", times},
               {"communication", communication},
               {"memory_bytes", memory},
               {"batch_fingerprint", hex64(result.fingerprint)},
               {"skipped", !result.updated},
               {"skipped_total", state_.skipped}};
  if (loss_scale_) line["loss_scale"] = scale_used_;
  if (!saves_.empty()) line["checkpoints"] = saves_;
  return line;
}

void Trainer::record_step(const StepResult& result) {
  last_loss_ = result.loss;
  predicted_->add(clock_);
  train_s_ += clock_.total() - clock_.seconds(TimeCategory::checkpoint);
  count_stall();
  (saver_->idle() ? quiet_ : busy_).add(clock_.total() - clock_.seconds(TimeCategory::checkpoint));
  Json line = first_rank() ? metrics_line(result) : Json();  // of the step alone, not of the exchange that follows
  watch_stragglers(line);
  observer_.rank_step(state_.step);
  if (!first_rank()) return;
  saves_.clear();
  step_stall_s_ = 0;
  if (prometheus_) prometheus_->add_step(line);
  if (!metrics_.write(line) && !metrics_full_) {
    metrics_full_ = true;
    warn(fmt::format(
        "step {}: {}/metrics.jsonl cannot be written (is the disk full?); training goes on without these lines",
        state_.step, spec_.out));
  }
  if (!result.finite) {
    event("skip", {{"reason", update_overflowed_ ? "f16 overflow" : "not finite"},
                   {"loss", json_or_null(result.loss)},
                   {"grad_norm", json_or_null(result.grad_norm)},
                   {"batch_fingerprint", hex64(result.fingerprint)}});
    if (update_overflowed_)
      note(fmt::format("step {}: gradients overflow f16; the update was skipped and the loss scale is now {}",
                       state_.step, loss_scale_->scale()));
    else
      warn(fmt::format("step {}: loss or gradient is not finite; the update was skipped on all ranks ({} so far)",
                       state_.step, state_.skipped));
  }
  if (line["mfu"]["full"].get<double>() > 1 && !peak_doubted_) {
    peak_doubted_ = true;
    warn(
        fmt::format("step {}: MFU is above 100 %: the peak of {} FLOP/s a rank ({}) is too low; do not trust these "
                    "percentages",
                    state_.step, format_count(peak_flops_), peak_source_));
  }
  if (guard_report_ && guard_report_->verdict != Verdict::ok) report_guard(*guard_report_);
  observer_.step({.step = state_.step,
                  .steps = spec_.steps,
                  .loss = result.loss,
                  .lr = line["lr"],
                  .grad_norm = result.grad_norm,
                  .tokens_per_s = line["tokens_per_s"],
                  .mfu_causal = line["mfu"]["causal"]});
}

void Trainer::report_guard(const GuardReport& r) {
  const char* action = r.action == GuardAction::rewind ? "rewind" : r.action == GuardAction::skip ? "skip" : "warn";
  event("spike", {{"verdict", verdict_name(r.verdict)},
                  {"action", action},
                  {"value", r.value},
                  {"median", r.median},
                  {"deviations", r.deviations}});
  warn(fmt::format("step {}: {} of {:.4g}, {:.1f} deviations above the median {:.4g}; --on-spike: {}", state_.step,
                   verdict_name(r.verdict), r.value, r.deviations, r.median, action));
}

void Trainer::watch_stragglers(Json& line) {
  if (world_.size() == 1) return;
  const double mine = clock_.seconds(TimeCategory::compute);
  std::vector<double> all(static_cast<size_t>(world_.size()));
  comm_record_->phase = "compute times";
  watched_world().all_gather(&mine, all.data(), sizeof mine);
  comm_record_->phase = "";
  if (const Straggler s = stragglers_->slowest(all); first_rank() && s.rank >= 0)
    line["slowest"] = {{"rank", s.rank}, {"compute_s", s.seconds}, {"peers_s", s.peers_s}};
  for (const Straggler& s : stragglers_->observe(all)) {
    if (!first_rank()) continue;
    const std::string host = world_.hosts()[static_cast<size_t>(s.rank)];
    event("straggler", {{"rank", s.rank}, {"host", host}, {"compute_s", s.seconds}, {"peers_s", s.peers_s}});
    warn(fmt::format("step {}: rank {} on {} computes for {:.3g} s a step, its peers {:.3g} s, for {} steps",
                     state_.step, s.rank, host, s.seconds, s.peers_s, StragglerWatch::kSteps));
  }
}

void Trainer::check_replicas() {
  const std::string found = replica_difference(*step_);
  event("replica_check", {{"equal", found.empty()}, {"difference", found}});
  if (found.empty()) return;
  throw SharedError(
      ErrorKind::verdict,
      fmt::format("step {}: {}; a rank computes wrongly or its memory is damaged: look at that host, and go "
                  "on from a checkpoint before this step",
                  state_.step, found));
}

// A layout that is right differs from one rank by rounding alone.
void Trainer::verify_parallel(const StepInputs& inputs, const StepResult& result) {
  constexpr double kMostInF32 = 1e-4;  // of a gradient, relative to its layer's largest, at the first step
  const bool first = steps_run_ == 1;
  agree(watched_world(), [&] {
    const ParallelReport r = parallel_check_->compare(inputs, result, reader());
    if (!first_rank()) return;
    Json tensors = Json::object();
    for (const TensorError& t : r.tensors) tensors[t.name] = json_or_null(t.error);
    event("verify_parallel", {{"loss_error", json_or_null(r.loss_error)},
                              {"grad_norm_error", json_or_null(r.norm_error)},
                              {"tensor_errors", tensors}});
    const TensorError& worst = r.tensors.front();
    note(
        fmt::format("step {}: against one rank in f32: loss {:.1e}, gradient norm {:.1e}, worst gradient {} {:.1e} "
                    "(relative; all tensors are in events.jsonl)",
                    state_.step, r.loss_error, r.norm_error, worst.name, worst.error));
    if (first && spec_.precision == "f32" &&
        !(worst.error <= kMostInF32 && r.loss_error <= kMostInF32 && r.norm_error <= kMostInF32))
      fail(ErrorKind::verdict,
           "--verify-parallel: the layout {} differs from one rank by {:.1e} in {} (loss {:.1e}, norm {:.1e}); "
           "expected at most "
           "{:.0e} in f32: do not trust this layout",
           layout_.text(), worst.error, worst.name, r.loss_error, r.norm_error, kMostInF32);
  });
  if (steps_run_ >= spec_.verify_parallel) parallel_check_.reset();
}

// The step once more, looking at every op's results, to name where the first value that is not finite comes from.
void Trainer::trace_nan() {
  op_log_.first_bad.clear();
  op_log_.look = true;
  StepClock clock;
  clock.start();
  step_->forward_backward({.first_sample = state_.samples - spec_.global_batch,
                           .lr = 0,
                           .loss_scale = loss_scale_ ? static_cast<double>(loss_scale_->scale()) : 1.0},
                          reader(), clock);
  op_log_.look = false;
  const std::vector<std::string> found = watched_world().gather_text(op_log_.first_bad),
                                 weights = watched_world().gather_text(bad_weight(*step_));
  // It began where the weights are bad already, or else on a rank whose op had sound inputs; the others got it from
  // there.
  const auto cause = [&](size_t r) {
    if (found[r].empty()) return 0;
    if (!weights[r].empty()) return 3;
    return found[r].find("already not finite") == std::string::npos ? 2 : 1;
  };
  size_t origin = 0;
  for (size_t r = 1; r < found.size(); ++r)
    if (cause(r) > cause(origin)) origin = r;
  std::string text = "the step repeated without a value that is not finite: a transient fault";
  if (cause(origin) > 0) text = fmt::format("rank {}: {}", origin, found[origin]);
  if (cause(origin) == 3) text += fmt::format("; its weight {} is not finite", weights[origin]);
  event("nan_trace", {{"origin", text}, {"rank", cause(origin) > 0 ? static_cast<int64_t>(origin) : -1}});
  warn(fmt::format("step {}: {}", state_.step, text));
}

}  // namespace rw
