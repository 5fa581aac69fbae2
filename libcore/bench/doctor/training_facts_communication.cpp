// Communication: how much of a step it takes, which links and groups, who did not come.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "libcore/bench/doctor/training_facts.h"
#include "libcore/comm/mesh.h"
#include "libcore/comm/watch.h"

namespace rw {
namespace {

constexpr size_t kFewSteps = 4;                        // settled; fewer say nothing of shares
constexpr double kLateOfStep = 3, kLateSeconds = 0.3;  // a step that waited for this many usual steps, and this long
constexpr double kShortStep = 0.05;  // seconds; in shorter steps latency and the scheduler rule, not the layout

double waited_s(const StepRecord& s) {
  return std::isfinite(s.exposed_s) ? s.exposed_s : s.second(TimeCategory::communication);
}
double communication_s(const StepRecord& s) { return s.second(TimeCategory::communication); }

// The most bytes by group and operation, and all together, of a usual step.
void collect_volume(const RunView& view, Facts& facts) {
  std::map<std::string, double> bytes;
  for (const StepRecord* s : view.settled)
    for (const auto& [name, b] : s->bytes) bytes[name] += b;
  if (bytes.empty()) return;
  const auto n = static_cast<double>(view.settled.size());
  const auto most =
      std::max_element(bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  facts.set("comm.most_bytes", {most->second / n, most->first, steps_text(view)});
  double total = 0;
  for (const auto& [name, b] : bytes) total += b;
  facts.set("comm.bytes", {total / n, "", steps_text(view)});
  const double seconds = median_of(view.settled, communication_s);
  if (seconds > 0) facts.set("comm.rate", {total / n / seconds, "", steps_text(view)});
}

// Groups whose ranks sit on more than one host.
void collect_crossings(const RunView& view, Facts& facts) {
  const auto size = [&](const char* key) {
    const double v = view.identity.number(std::string("layout.") + key);
    return std::isfinite(v) && v >= 1 ? static_cast<int64_t>(v) : 1;
  };
  MeshShape shape;
  shape.tp = size("tp"), shape.dp = size("dp"), shape.pp = size("pp");
  const auto ranks = static_cast<int64_t>(view.hosts.size());
  const std::set<std::string> distinct(view.hosts.begin(), view.hosts.end());
  if (ranks == 0) return;
  facts.set("hosts", {static_cast<double>(distinct.size()), "", "run.json"});
  if (ranks != shape.ranks() || distinct.size() < 2) return;
  std::set<std::string> crossing;
  for (int64_t r = 0; r < ranks; ++r) {
    const MeshPlace place(shape, r);
    const auto look = [&](const RankGroup& group, const char* name) {
      for (int64_t i = 1; i < group.size; ++i)
        if (view.hosts[static_cast<size_t>(group.rank(i))] != view.hosts[static_cast<size_t>(group.rank(0))])
          crossing.insert(name);
    };
    look(place.tp_group, "tensor-parallel"), look(place.dp_group, "data-parallel"), look(place.pp_group, "pipeline");
  }
  std::string text;
  for (const std::string& name : crossing) text += (text.empty() ? "" : ", ") + name;
  facts.set("comm.crossing", {static_cast<double>(crossing.size()), text, "run.json (hosts, layout)"});
  if (crossing.count("tensor-parallel") > 0)
    facts.set("comm.tp_crossing", {static_cast<double>(shape.tp), view.identity.word("layout.text"), "run.json"});
}

void collect_shares(const RunView& view, Facts& facts) {
  if (!(view.step_s > 0) || view.settled.size() < kFewSteps) return;
  const double share =
      median_of(view.settled, [](const StepRecord& s) { return share_of_step(s, communication_s(s)); });
  if (std::isnan(share)) return;
  facts.set("comm.share", {share, "", steps_text(view)});
  if (view.step_s >= kShortStep) facts.set("comm.share_of_long_step", {share, "", steps_text(view)});
  double lost = 0, total = 0, worst = 0;
  int64_t n = 0, worst_step = -1;
  const double usual = median_of(view.settled, waited_s);
  for (const StepRecord& s : view.run.steps) {
    const double w = waited_s(s);
    if (!std::isfinite(w) || &s == &view.run.steps.front()) continue;
    total += s.step_s;
    if (w < kLateSeconds || w < kLateOfStep * view.step_s) continue;
    ++n;
    lost += w - usual;
    if (w > worst) worst = w, worst_step = s.step;
  }
  if (n == 0) return;
  const std::string where = fmt::format("metrics.jsonl, the worst at step {}", worst_step);
  facts.set("comm.late_steps", {static_cast<double>(n), fmt::format("the worst at step {}", worst_step), where});
  facts.set("comm.late_s", {worst, "", where});
  if (total > 0) facts.set("comm.late_share", {lost / total, "", where});
}

void collect_prediction(const RunView& view, Facts& facts) {
  const double predicted = view.identity.number("predicted.communication-s");
  const double measured = median_of(view.settled, communication_s);
  if (!std::isfinite(predicted) || !std::isfinite(measured) || !(view.step_s > 0)) return;
  facts.set("comm.predicted_s", {predicted, "", "run.json (predicted)"});
  facts.set("comm.s", {measured, "", steps_text(view)});
  if (predicted > 0) facts.set("comm.over_predicted", {measured / predicted, "", steps_text(view)});
  facts.set("comm.beyond_predicted_share", {(measured - predicted) / view.step_s, "", steps_text(view)});
}

void collect_network(const RunView& view, Facts& facts) {
  double retransmits = 0, seconds = 0, drops = 0, fastest = 0;
  int64_t n = 0, n_with = 0;
  std::string interface_name;
  for (const FlatRecord& r : view.resources) {
    const double interval = r.number("interval_s");
    if (!(interval > 0)) continue;
    seconds += interval;
    ++n;
    if (const double t = r.number("tcp_retransmits"); t > 0) retransmits += t, ++n_with;
    for (const auto& [path, v] : r.numbers) {
      if (!path.starts_with("network.") || path.starts_with("network.lo.")) continue;
      if (path.ends_with(".dropped") || path.ends_with(".errors")) drops += v;
      if (path.ends_with(".sent_bytes") && v / interval > fastest) {
        fastest = v / interval;
        interface_name = path.substr(8, path.size() - 8 - 11);
      }
    }
  }
  if (seconds <= 0) return;
  facts.set("net.retransmits_per_s", {retransmits / seconds, "", "resources.jsonl (tcp_retransmits)"});
  facts.set("net.retransmit_samples", {static_cast<double>(n_with) / static_cast<double>(n), "", "resources.jsonl"});
  facts.set("net.drops_per_s", {drops / seconds, "", "resources.jsonl (network)"});
  if (fastest > 0) facts.set("net.fastest", {fastest, interface_name, "resources.jsonl (network)"});
}

void collect_failures(const RunView& view, Facts& facts) {
  std::string error;
  double step = std::nan("");
  for (size_t i = 0; i < view.events.size(); ++i) {
    const FlatRecord& e = view.events[i];
    const std::string kind = e.word("event");
    if (kind == "failed" && !e.word("error").empty()) error = e.word("error"), step = e.number("step");
    if (kind == "resume" || kind == "start" || kind == "end") error.clear();  // it went on, or began anew
  }
  std::string verdict;
  if (!view.run.watchdog.empty())
    verdict = watchdog_verdict(view.run.watchdog.front().parent_path(),
                               std::max<int64_t>(1, static_cast<int64_t>(view.hosts.size())));
  if (error.empty() && verdict.empty()) return;
  facts.set("comm.failed", {step, verdict.empty() ? error : verdict,
                            view.run.watchdog.empty() ? "events.jsonl (failed)" : "watchdog/rank-*.jsonl"});
  if (!verdict.empty())
    facts.set("comm.verdict", {static_cast<double>(view.run.watchdog.size()), verdict, "watchdog/"});
}

}  // namespace

void collect_communication_facts(const RunView& view, Facts& facts) {
  collect_volume(view, facts);
  collect_crossings(view, facts);
  collect_shares(view, facts);
  collect_prediction(view, facts);
  collect_network(view, facts);
  collect_failures(view, facts);
}

}  // namespace rw
