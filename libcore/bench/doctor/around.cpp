#include "libcore/bench/doctor/around.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "libcore/train/lr_schedule.h"

namespace rw {
namespace {

constexpr double kLrJump = 1.5;
constexpr double kSlow = 4, kLeastSlowSeconds = 0.2;  // a step of so many usual ones, and this long
constexpr double kClockDrop = 0.85;

bool is_long(double seconds, const RunView& view) {
  return seconds > kSlow * view.step_s && seconds > kLeastSlowSeconds;
}

void add_steps(const RunView& view, int64_t from, int64_t to, std::vector<NearEvent>& out) {
  for (const StepRecord& s : view.run.steps) {
    if (s.step < from || s.step > to) continue;
    const double data = s.second(TimeCategory::data), wait = s.exposed_s;
    if (is_long(data, view))
      out.push_back({NearKind::data_stall, s.step, fmt::format("step {} waited {:.3g} s for data", s.step, data)});
    else if (is_long(wait, view))
      out.push_back(
          {NearKind::late_rank, s.step, fmt::format("step {} waited {:.3g} s for other ranks", s.step, wait)});
    else if (is_long(s.step_s, view))
      out.push_back({NearKind::slow_step, s.step, fmt::format("step {} took {:.3g} s", s.step, s.step_s)});
  }
}

void add_events(const RunView& view, int64_t from, int64_t to, int64_t step, std::vector<NearEvent>& out) {
  for (size_t i = 0; i < view.events.size(); ++i) {
    const FlatRecord& e = view.events[i];
    const int64_t at = view.run.events[i].step;
    if (at < from || at > to) continue;
    const std::string kind = e.word("event");
    if (kind == "resume") out.push_back({NearKind::resume, at, fmt::format("the run was resumed at step {}", at)});
    else if (kind == "failed") out.push_back({NearKind::failure, at, fmt::format("the run failed at step {}", at)});
    else if (kind == "rewind") out.push_back({NearKind::resume, at, fmt::format("the run was rewound to step {}", at)});
    else if (kind == "skip" && at < step) out.push_back({NearKind::skip, at, fmt::format("step {} was skipped", at)});
    else if (kind == "checkpoint_failed")
      out.push_back({NearKind::checkpoint, at, fmt::format("a save failed at step {}", at)});
  }
}

void add_clock(const RunView& view, int64_t from, int64_t to, std::vector<NearEvent>& out) {
  double highest = 0;
  for (const FlatRecord& r : view.resources)
    if (const double mhz = r.number("clock_mhz.mean"); mhz > highest) highest = mhz;
  for (size_t i = 0; i < view.resources.size(); ++i) {
    const double mhz = view.resources[i].number("clock_mhz.mean");
    const int64_t at = view.run.resources[i].step;
    if (at < from || at > to || !(mhz < kClockDrop * highest)) continue;
    out.push_back({NearKind::clock_drop, at,
                   fmt::format("{}'s CPUs ran at {:.0f} of {:.0f} MHz", view.run.resources[i].host, mhz, highest)});
    return;
  }
}

// The schedule that run.json tells, of a peak of one; nothing when it tells none.
std::optional<TrainSpec> schedule_of(const RunView& view) {
  TrainSpec spec;
  spec.lr_schedule = view.identity.word("config.lr_schedule");
  const double lr = view.identity.number("config.lr"), steps = view.identity.number("config.steps");
  if (spec.lr_schedule.empty() || !(lr > 0) || !(steps >= 1)) return std::nullopt;
  const auto number = [&](const char* key) {
    const double v = view.identity.number(std::string("config.") + key);
    return std::isfinite(v) ? v : 0;
  };
  spec.lr = lr;
  spec.min_lr = number("min_lr");
  spec.steps = static_cast<int64_t>(steps);
  spec.warmup_steps = static_cast<int64_t>(number("warmup_steps"));
  spec.decay_steps = static_cast<int64_t>(number("decay_steps"));
  return spec;
}

}  // namespace

std::vector<int64_t> lr_jumps(const RunView& view) {
  std::vector<int64_t> out;
  const std::optional<TrainSpec> schedule = schedule_of(view);
  std::set<int64_t> resumed;  // at these steps the run went on
  for (const FlatRecord& e : view.events)
    if (e.word("event") == "resume") resumed.insert(static_cast<int64_t>(e.number("step")));
  const double warm_up = view.identity.number("config.warmup_steps");
  const std::vector<StepRecord>& steps = view.run.steps;
  for (size_t i = 1; i < steps.size(); ++i) {
    const double before = steps[i - 1].lr, now = steps[i].lr;
    if (!(before > 0) || !(now > 0) || steps[i].step != steps[i - 1].step + 1) continue;
    if (steps[i].step <= 3 || (std::isfinite(warm_up) && static_cast<double>(steps[i].step) <= warm_up)) continue;
    const double ratio = now / before;
    if (ratio < kLrJump && ratio > 1 / kLrJump) continue;
    // run.json has the schedule of the last attempt. In one attempt the rate follows its schedule, whichever it was:
    // only where another one went on can it jump, or where it leaves what run.json tells.
    if (schedule && resumed.count(steps[i - 1].step) == 0) {
      if (!resumed.empty() && steps[i].step <= *resumed.rbegin()) continue;
      const double told =
          lr_at(*schedule, schedule->lr, steps[i].step) / lr_at(*schedule, schedule->lr, steps[i - 1].step);
      if (std::isfinite(told) && std::fabs(std::log(ratio / told)) < std::log(1.2)) continue;
    }
    // The end of a fast schedule falls by such factors, one after the other.
    if (ratio < 1 && i > 1 && steps[i - 2].lr > 0 && before / steps[i - 2].lr < 0.8) continue;
    out.push_back(steps[i].step);
  }
  return out;
}

std::vector<NearEvent> around(const RunView& view, int64_t step, const AroundSettings& settings) {
  const int64_t from = step - settings.steps_before, to = step + settings.steps_after;
  std::vector<NearEvent> out;
  add_events(view, from, to, step, out);
  add_steps(view, from, to, out);
  add_clock(view, from, to, out);
  for (const int64_t at : lr_jumps(view))
    if (at >= from && at <= step)
      out.push_back({NearKind::lr_jump, at, fmt::format("the learning rate jumped at step {}", at)});
  std::stable_sort(out.begin(), out.end(), [](const NearEvent& a, const NearEvent& b) { return a.kind < b.kind; });
  return out;
}

}  // namespace rw
