#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "libcore/bench/record/compare.h"

namespace rw {
namespace {

constexpr size_t kWidestName = 56;

std::string number(double v, const std::string& unit) {
  if (std::isnan(v)) return "-";
  return fmt::format("{:.5g}{}{}", v, unit.empty() ? "" : " ", unit);
}

std::string percent(double ratio) {
  constexpr double kBeyondPercent = 1e4;
  if (!std::isfinite(ratio)) return "-";
  return ratio > kBeyondPercent ? fmt::format("x {:.3g}", ratio) : fmt::format("{:+.1f} %", 100 * (ratio - 1));
}

// Counts in full: a change of one in a million is one.
std::string value_text(const MetricChange& m, double v) {
  constexpr double kExactWhole = 9007199254740992;  // 2^53
  if (m.kind != MetricKind::count || std::abs(v) > kExactWhole || v != std::floor(v)) return number(v, m.unit);
  return fmt::format("{:.0f}{}{}", v, m.unit.empty() ? "" : " ", m.unit);
}

std::string change_text(const MetricChange& m) {
  if (m.kind != MetricKind::count || m.change.now == m.change.base || std::isnan(m.change.now - m.change.base))
    return percent(m.change.ratio);
  const double d = m.change.now - m.change.base;
  return fmt::format("{}{}", d > 0 ? "+" : "", value_text(m, d));
}

std::string interval(const MetricChange& m) {
  if (m.kind != MetricKind::time || std::isnan(m.change.low)) return "-";
  return percent(m.change.low) + " .. " + percent(m.change.high);
}

Json number_json(double v) { return std::isfinite(v) ? Json(v) : Json(nullptr); }

std::string case_text(const CaseChange& c, const CompareView& view) {
  std::string out = fmt::format("{} \"{}\": ", c.bench, c.name);
  const auto runs = [](int64_t n) { return fmt::format("{} run{}", n, n == 1 ? "" : "s"); };
  out += fmt::format("{} of base, {} of new\n", runs(c.runs_base), runs(c.runs_now));
  for (const std::string& note : c.notes) out += "  note: " + note + "\n";
  size_t width = 6;
  for (const MetricChange& m : c.metrics) width = std::clamp(m.name.size(), width, kWidestName);
  out += fmt::format("  {:<{}} {:>16} {:>16} {:>10} {:>18}  {}\n", "metric", width, "base", "new", "change", "interval",
                     "verdict");
  for (const MetricChange& m : c.metrics) {
    const bool is_fact = m.kind == MetricKind::fact;
    if (is_fact && !view.facts) continue;
    const bool tells = !is_fact && m.change.verdict != ChangeVerdict::same;
    out += fmt::format("  {:<{}} {:>16} {:>16} {:>10} {:>18}  {}{}\n", m.name, width, value_text(m, m.change.base),
                       value_text(m, m.change.now), change_text(m), interval(m),
                       is_fact ? "(not judged)" : change_verdict_name(m.change.verdict),
                       tells ? " (" + m.change.why + ")" : "");
  }
  if (std::any_of(c.metrics.begin(), c.metrics.end(), [](const auto& m) { return m.kind == MetricKind::time; }))
    out += "  base, new: medians; change: Hodges-Lehmann shift, the median of all ratios of a new to a base sample\n";
  if (!c.missing.empty()) out += fmt::format("  only base has: {}\n", listed(c.missing));
  if (!c.added.empty()) out += fmt::format("  only new has: {}\n", listed(c.added));
  return out;
}

Json metric_json(const MetricChange& m) {
  const bool is_fact = m.kind == MetricKind::fact;
  const Change& c = m.change;
  return {{"name", m.name},
          {"unit", m.unit},
          {"kind", metric_kind_name(m.kind)},
          {"base", number_json(c.base)},
          {"new", number_json(c.now)},
          {"n_base", c.n_base},
          {"n_new", c.n_now},
          {"ratio", number_json(c.ratio)},
          {"low", number_json(c.low)},
          {"high", number_json(c.high)},
          {"p_worse", number_json(c.p_worse)},
          {"verdict", is_fact ? Json(nullptr) : Json(change_verdict_name(c.verdict))},
          {"why", c.why}};
}

}  // namespace

std::string comparison_text(const Comparison& comparison, const CompareView& view) {
  std::string out = fmt::format("{} -> {}\n", comparison.base, comparison.now);
  for (const CaseChange& c : comparison.cases) out += case_text(c, view);
  if (!comparison.missing.empty()) out += fmt::format("only base has: {}\n", listed(comparison.missing));
  if (!comparison.added.empty()) out += fmt::format("only new has: {}\n", listed(comparison.added));
  return out;
}

Json comparison_json(const Comparison& comparison) {
  Json cases = Json::array();
  for (const CaseChange& c : comparison.cases) {
    Json metrics = Json::array();
    for (const MetricChange& m : c.metrics) metrics.push_back(metric_json(m));
    cases.push_back({{"bench", c.bench},
                     {"name", c.name},
                     {"runs_base", c.runs_base},
                     {"runs_new", c.runs_now},
                     {"metrics", std::move(metrics)},
                     {"missing", c.missing},
                     {"added", c.added},
                     {"notes", c.notes}});
  }
  Json verdicts = Json::object();
  for (const ChangeVerdict v :
       {ChangeVerdict::worse, ChangeVerdict::better, ChangeVerdict::same, ChangeVerdict::too_noisy})
    verdicts[change_verdict_name(v)] = comparison.count(v);
  return {{"base", comparison.base},         {"new", comparison.now},     {"regression", comparison.has_regression()},
          {"verdicts", std::move(verdicts)}, {"cases", std::move(cases)}, {"missing", comparison.missing},
          {"added", comparison.added}};
}

std::string comparison_summary(const std::vector<Comparison>& comparisons) {
  std::vector<std::string> worse;
  std::string counts;
  for (const Comparison& one : comparisons)
    for (const CaseChange& c : one.cases)
      for (const MetricChange& m : c.metrics)
        if (m.kind != MetricKind::fact && m.change.verdict == ChangeVerdict::worse)
          worse.push_back(m.name + " " + percent(m.change.ratio) +
                          (m.kind == MetricKind::count ? " (" + change_text(m) + ")" : ""));
  for (const ChangeVerdict v :
       {ChangeVerdict::worse, ChangeVerdict::better, ChangeVerdict::same, ChangeVerdict::too_noisy}) {
    int64_t n = 0;
    for (const Comparison& one : comparisons) n += one.count(v);
    if (n > 0) counts += fmt::format("{}{} {}", counts.empty() ? "" : ", ", n, change_verdict_name(v));
  }
  if (counts.empty()) counts = "nothing was judged";
  if (worse.empty()) return fmt::format("no regression: {}", counts);
  constexpr size_t kShown = 5;
  const std::string more = worse.size() > kShown ? fmt::format(" and {} more", worse.size() - kShown) : "";
  worse.resize(std::min(worse.size(), kShown));
  return fmt::format("REGRESSION: {}: {}{}", counts, listed(worse), more);
}

}  // namespace rw
