// The checkpoints of a run: when one is due, what became of it, and going back to one.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/base/units.h"
#include "libcore/ckpt/interval.h"
#include "libcore/comm/agree.h"
#include "libcore/train/trainer_run.h"

namespace rw {

namespace {

// --checkpoint-every auto saves first after so many steps, to learn what a save costs.
constexpr int64_t kProbeSteps = 10;

std::string short_time(double seconds) {
  return seconds < 1 ? fmt::format("{:.3g} ms", 1e3 * seconds) : format_seconds(seconds);
}

}  // namespace

void Trainer::start_saver() {
  DeviceMemory* const memory = device_->memory();
  CopyPiece copy = nullptr;
  if (memory != nullptr)
    copy = [memory](char* dst, const char* src, int64_t bytes) { memory->copy_to_host(dst, src, bytes); };
  // A device's copies take their turns: more threads would only wait.
  saver_.emplace(AsyncSaveOptions{.durable = checkpoints_dir(spec_),
                                  .local = local_,
                                  .saver = {.memory_bytes = spec_.checkpoint_memory,
                                            .bytes_per_s = static_cast<double>(spec_.checkpoint_bandwidth),
                                            .threads = memory != nullptr ? 1 : threads_,
                                            .copy = copy}},
                 watched_world());
  if (resume_.checkpoint != nullptr) saver_->compare_with(resume_.checkpoint->manifest());
  resume_.checkpoint.reset();
  const int64_t every = checkpoint_interval(spec_);
  every_ = every >= 0 ? every : kProbeSteps;
  next_auto_ = every >= 0 ? -1 : state_.step + kProbeSteps;
  if (every != 0 || !local_.empty()) saver_->prepare(checkpoint_pieces(*step_));
}

void Trainer::count_stall() {
  const double seconds = saver_->take_blocking_s();
  stall_s_ += seconds;
  step_stall_s_ += seconds;
  save_stall_s_ += seconds;
}

// Staging is over before the weights change; what it took of the step is the checkpoint's.
void Trainer::finish_staging() {
  if (saver_->idle()) return;
  clock_.mark(TimeCategory::compute);
  saver_->finish_staging();
  clock_.mark(TimeCategory::checkpoint);
}

void Trainer::save_if_due() {
  const int64_t step = state_.step;
  const bool on_time = next_auto_ >= 0 ? step >= next_auto_ : every_ > 0 && step % every_ == 0;
  const bool durable = on_time || owes_durable_;
  // While local saves fail, durable ones go their own way.
  const bool direct = local_failed_ && durable && saver_->idle();
  const bool local = !local_.empty() && !direct &&
                     (spec_.local_checkpoint_every > 0 ? step % spec_.local_checkpoint_every == 0 || durable : durable);
  if (!on_time && !local && !direct) return;
  const bool begun = request_save(durable, local);
  owes_durable_ = durable && !local_.empty() && !begun;
  if (spec_.checkpoint_mode == "sync") heed(saver_->settle());
}

// False when it is not even begun: one is under way, or there is nothing worth saving.
bool Trainer::request_save(bool durable, bool local) {
  const char* tier = local ? "local" : "durable";
  if (skips_in_a_row_ > 0) {
    warn(fmt::format("step {}: no checkpoint is saved while steps are skipped", state_.step));
    return false;
  }
  if (saver_->saving()) {
    ++skipped_saves_;
    event("checkpoint_skipped", {{"tier", tier}, {"reason", "the save before it is still under way"}});
    note(fmt::format("step {}: no checkpoint is begun, the one of step {} is still being written ({} so far)",
                     state_.step, requested_step_, skipped_saves_));
    return false;
  }
  comm_record_->phase = "checkpoint";
  state_.guard = guard_->state().dump();
  if (loss_scale_) state_.loss_scale = loss_scale_->state().dump();
  count_stall();
  save_stall_s_ = 0;
  device_->wait();  // the last update: what is copied beside the stream must be there
  saver_->request({.step = state_.step,
                   .pieces = checkpoint_pieces(*step_),
                   .identity = first_rank() ? saved_identity() : "",
                   .state = first_rank() ? state_json(state_).dump() : "",
                   .durable = durable,
                   .local = local,
                   .must_differ = must_differ_});
  comm_record_->phase = "";
  must_differ_ = false;
  requested_step_ = state_.step;
  requested_durable_ = durable;
  event("checkpoint_requested", {{"tier", tier}, {"durable", durable}});
  if (next_auto_ >= 0 && durable) next_auto_ = state_.step + every_;
  return true;
}

std::string Trainer::saved_identity() const {
  Json identity = identity_;
  if (std::isfinite(last_loss_)) identity["loss"] = last_loss_;
  return identity.dump();
}

void Trainer::heed(const std::vector<SaveNews>& news) {
  count_stall();
  for (const SaveNews& n : news) {
    Json details = {{"step", n.step}, {"at_step", state_.step}, {"tier", n.tier}};
    const double rate = n.background_s > 0 ? static_cast<double>(n.bytes) / n.background_s : 0;
    switch (n.kind) {
      case SaveNews::Kind::written:
        details["bytes"] = n.bytes;
        details["background_s"] = n.background_s;
        event("checkpoint_written", details);
        break;
      case SaveNews::Kind::committed:
        if (n.tier == "durable") saved_step_ = n.step;
        else local_failed_ = false, local_step_ = n.step;
        rewinds_ = 0;
        details["seconds"] = n.background_s;
        details["blocking_s"] = n.blocking_s;
        details["background_s"] = n.background_s;
        details["stall_s"] = save_stall_s_;
        details["stall_total_s"] = stall_s_;
        details["bytes"] = n.bytes;
        details["bytes_per_s"] = rate;
        event("checkpoint", details);
        if (first_rank()) {
          details["of_step"] = n.step;  // a metrics line has one "step": its own
          details.erase("step");
          saves_.push_back(details);
        }
        note(fmt::format(
            "step {}: {}checkpoint saved, {} written in {} ({}/s); training waited {} for it ({:.2f} % of "
            "the time since the start for all saves)",
            n.step, n.tier == "local" ? "local " : "", format_bytes(static_cast<double>(n.bytes)),
            short_time(n.background_s), format_bytes(rate), short_time(save_stall_s_), 100 * stall_share()));
        if (!n.unchanged.empty()) warn_unchanged(n);
        if (n.tier == "durable" && first_rank()) prune();
        choose_interval(n);
        break;
      case SaveNews::Kind::failed:
        if (n.tier == "durable") failed_save_step_ = n.step;
        else local_failed_ = true, owes_durable_ = owes_durable_ || requested_durable_;
        must_differ_ = true;  // nothing was learned about the steps before
        details["error"] = n.error;
        event("checkpoint_failed", details);
        warn(fmt::format("step {}: no {}checkpoint was saved: {}; {}", n.step, n.tier == "local" ? "local " : "",
                         n.error, standing()));
        break;
      case SaveNews::Kind::skipped:
        details["reason"] = n.error;
        event("checkpoint_skipped", details);
        owes_durable_ = true;
        break;
      case SaveNews::Kind::stale:
        details["error"] = n.error;
        event("checkpoint_failed", details);
        throw SharedError(
            ErrorKind::verdict,
            fmt::format("step {}: the checkpoint is stale and was not committed: {}; {}", n.step, n.error, standing()));
    }
  }
}

std::string Trainer::standing() const {
  if (local_step_ > saved_step_) return fmt::format("the local one of step {} stands", local_step_);
  return saved_step_ > 0 ? fmt::format("the one of step {} stands", saved_step_) : "there is none yet";
}

void Trainer::warn_unchanged(const SaveNews& n) {
  event("checkpoint_unchanged", {{"step", n.step}, {"tensors", n.unchanged}});
  warn(fmt::format("step {}: {} tensors ({}{}) are as in the save before although the weights were updated since",
                   n.step, n.unchanged.size(), n.unchanged.front(), n.unchanged.size() > 1 ? ", ..." : ""));
}

// --checkpoint-every auto: from what this save cost and what steps take.
void Trainer::choose_interval(const SaveNews& n) {
  if (next_auto_ < 0 || n.tier != (local_.empty() ? "durable" : "local")) return;
  double means[2] = {quiet_.mean(), busy_.mean()};
  watched_world().all_reduce(means, 2, DType::f64, ReduceOp::max);
  if (means[0] <= 0) means[0] = means[1];
  if (means[0] <= 0) return;  // no step since
  const double slower_s = std::max(0.0, means[1] - means[0]) * (n.background_s / std::max(means[0], means[1]));
  const IntervalInputs inputs{.cost_s = n.blocking_s + slower_s,
                              .background_s = n.background_s,
                              .mtbf_s = spec_.mtbf * 3600,
                              .step_s = means[0]};
  every_ = optimal_interval_steps(inputs);
  next_auto_ = std::max(state_.step + 1, n.step + every_);
  event("checkpoint_interval", {{"steps", every_},
                                {"cost_s", inputs.cost_s},
                                {"blocking_s", n.blocking_s},
                                {"slower_steps_s", slower_s},
                                {"background_s", inputs.background_s},
                                {"mtbf_s", inputs.mtbf_s},
                                {"step_s", inputs.step_s}});
  if (every_ != said_interval_)
    note(fmt::format("step {}: a checkpoint every {} steps ({}): a save costs {}, a step takes {}, --mtbf {} h",
                     state_.step, every_, short_time(static_cast<double>(every_) * inputs.step_s),
                     short_time(inputs.cost_s), short_time(inputs.step_s), spec_.mtbf));
  said_interval_ = every_;
}

// A checkpoint that cannot be removed is no reason to stop.
void Trainer::prune() {
  try {
    prune_checkpoints(checkpoints_dir(spec_), spec_.keep_last, spec_.keep_every);
  } catch (const Error& e) {
    warn(fmt::format("step {}: old checkpoints stay: {}", state_.step, e.what()));
  }
}

// At the end of a run: waits for what is under way, and saves this step unless it is saved already. A failed save
// leaves the previous checkpoint.
bool Trainer::save_last() {
  comm_record_->phase = "checkpoint";
  const auto settle = [&] {
    heed(saver_->settle([&](double seconds) {
      if (static_cast<int64_t>(seconds) % 10 == 0)
        note(fmt::format("waiting for the checkpoint of step {} to be on disk, {} so far", requested_step_,
                         format_seconds(seconds)));
    }));
  };
  settle();
  if (spec_.save_at_end && saved_step_ != state_.step && failed_save_step_ != state_.step) {
    const bool local = !local_.empty() && !local_failed_ && local_step_ != state_.step;
    request_save(true, local);
    settle();
    if (local && local_failed_) {
      request_save(true, false);
      settle();
    }
  }
  count_stall();
  comm_record_->phase = "";
  return saved_step_ == state_.step || !spec_.save_at_end;
}

// Back to the newest checkpoint, with the data going on after the batches seen since: those are skipped.
bool Trainer::rewind() {
  heed(saver_->settle());
  TrainSpec newest = spec_;
  newest.resume = "auto";
  ResumePlan plan = plan_resume(newest, local_, watched_world());
  if (first_rank()) set_aside(plan);
  for (const std::string& line : plan.notes) warn(line);
  if (plan.checkpoint == nullptr) {
    warn(fmt::format("step {}: nothing to rewind to, no checkpoint was saved; the update was skipped", state_.step));
    return false;
  }
  if (++rewinds_ > spec_.max_skips)
    throw SharedError(
        ErrorKind::runtime,
        fmt::format("the loss spiked after each of {} rewinds to step {}; use a smaller --lr, look at the "
                    "data from sample {}, or use --on-spike skip",
                    spec_.max_skips, plan.checkpoint->step(), state_.samples));
  const int64_t from = state_.step, samples = state_.samples, skipped = state_.skipped;
  agree(watched_world(), [&] { state_ = parse_state(plan.checkpoint->state(), plan.checkpoint->where()); });
  take_up(plan);
  saver_->compare_with(plan.checkpoint->manifest());
  must_differ_ = false;
  event("rewind",
        {{"from_step", from}, {"skipped_samples", {{"first", state_.samples}, {"n", samples - state_.samples}}}});
  warn(fmt::format("step {}: rewound to the checkpoint of step {}; samples {} to {} are skipped", from, state_.step,
                   state_.samples, samples - 1));
  state_.samples = samples;
  state_.skipped = skipped;
  if (first_rank()) {
    const std::filesystem::path metrics = std::filesystem::path(spec_.out) / "metrics.jsonl";
    drop_lines_after(metrics, state_.step);
    metrics_ = JsonLines(metrics);  // the old one writes to the file that this one has replaced
  }
  saved_step_ = plan.local.step >= 0 ? saved_step_ : state_.step;
  last_validated_ = -1;
  return true;
}

}  // namespace rw
