// Checkpoints and the disks they go to.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "libcore/base/median.h"
#include "libcore/bench/doctor/training_facts.h"

namespace rw {
namespace {

constexpr double kStallSeconds = 0.1;  // of a save, on average: less is nothing to look after
constexpr double kStallTotal = 0.5;    // seconds of a run
// Of the time and in so many saves: then it counts however short each of them is.
constexpr double kMuch = 0.1, kMuchSeconds = 0.2;
constexpr int64_t kMany = 5;

// Of all saves, the last one of a run too: it comes after the last metrics line, and only its event tells of it. It
// keeps nobody from a next step, so that no rule asks for it.
void collect_share(const RunView& view, Facts& facts) {
  double stalled = 0, worked = 0, told = 0;
  for (const StepRecord& s : view.run.steps) {
    if (const double c = s.second(TimeCategory::checkpoint); c > 0) stalled += c;
    if (s.step_s > 0) worked += s.step_s;
  }
  for (const FlatRecord& e : view.events) {
    if (e.word("event") == "resume") told = 0;  // what counts is the sum of one attempt
    if (const double c = e.number("stall_total_s"); e.word("event") == "checkpoint" && c > told) told = c;
  }
  stalled = std::max(stalled, told);
  if (worked > 0 && stalled > 0)
    facts.set("checkpoint.share", {stalled / (worked + stalled), "", "metrics.jsonl, events.jsonl (stall_total_s)"});
}

void collect_stalls(const RunView& view, Facts& facts) {
  double stalled = 0, worked = 0, worst = 0;
  int64_t n = 0, worst_step = -1;
  for (const StepRecord& s : view.run.steps) {
    const double c = s.second(TimeCategory::checkpoint);
    worked += s.step_s;
    if (!(c > 0)) continue;
    stalled += c;
    if (c > kStallSeconds / 10) ++n;
    if (c > worst) worst = c, worst_step = s.step;
  }
  if (worked <= 0 || n == 0) return;
  const std::string where = fmt::format("metrics.jsonl, the worst at step {}", worst_step);
  facts.set("checkpoint.worst_s", {worst, fmt::format("at step {}", worst_step), where});
  const double share = stalled / (worked + stalled);
  const bool is_long = stalled > kStallTotal && stalled / static_cast<double>(n) > kStallSeconds;
  const bool is_often = share > kMuch && stalled > kMuchSeconds && n >= kMany;
  if (is_long || is_often) {
    facts.set("checkpoint.stall_share", {share, fmt::format("{} saves", n), where});
    facts.set("checkpoint.stall_steps", {worst / view.step_s, "", where});
  }
}

void collect_saves(const RunView& view, Facts& facts) {
  std::vector<double> rates, seconds, blocking;
  int64_t n_skipped = 0, n_failed = 0;
  bool last_failed = false;
  for (const FlatRecord& e : view.events) {
    const std::string kind = e.word("event");
    if (kind == "checkpoint") {
      last_failed = false;
      if (const double r = e.number("bytes_per_s"); r > 0) rates.push_back(r);
      if (const double s = e.number("background_s"); s >= 0) seconds.push_back(s);
      if (const double s = e.number("blocking_s"); s >= 0) blocking.push_back(s);
    } else if (kind == "checkpoint_skipped") {
      ++n_skipped;
    } else if (kind == "checkpoint_failed") {
      ++n_failed;
      last_failed = true;
      const std::string error = e.word("error");
      const double step = e.number("step");
      facts.set("checkpoint.failed",
                {static_cast<double>(n_failed), error, fmt::format("events.jsonl, step {}", step)});
      if (error.find("No space left") != std::string::npos || error.find("quota") != std::string::npos)
        facts.set("checkpoint.disk_full",
                  {static_cast<double>(n_failed), error, fmt::format("events.jsonl, step {}", step)});
    }
  }
  if (n_failed > 0 && last_failed) facts.set("checkpoint.none_since", {1, "", "events.jsonl"});
  const char* where = "events.jsonl (checkpoint)";
  if (n_skipped > 0)
    facts.set("checkpoint.skipped", {static_cast<double>(n_skipped), "", "events.jsonl (checkpoint_skipped)"});
  if (rates.empty() || seconds.empty()) return;
  facts.set("checkpoint.bytes_per_s", {median(rates), "", where});
  facts.set("checkpoint.background_s", {median(seconds), "", where});
  facts.set("checkpoint.slowest_s", {*std::max_element(seconds.begin(), seconds.end()), "", where});
  if (!blocking.empty()) facts.set("checkpoint.blocking_s", {median(blocking), "", where});
}

void collect_disks(const RunView& view, Facts& facts) {
  std::map<std::string, std::vector<double>> busy;
  for (size_t i = 0; i < view.resources.size(); ++i)
    for (const auto& [path, v] : view.resources[i].numbers)
      if (path.starts_with("disks.") && path.ends_with(".busy"))
        busy[path.substr(6, path.size() - 6 - 5) + " of " + view.run.resources[i].host].push_back(v);
  for (const auto& [disk, values] : busy) {
    if (values.size() < 5) continue;
    const double usual = median(values);
    const Fact* known = facts.find("disk.busy");
    if (known == nullptr || usual > known->value) facts.set("disk.busy", {usual, disk, "resources.jsonl (disks)"});
  }
}

}  // namespace

void collect_checkpoint_facts(const RunView& view, Facts& facts) {
  collect_share(view, facts);
  collect_stalls(view, facts);
  collect_saves(view, facts);
  collect_disks(view, facts);
}

}  // namespace rw
