#include "libcore/bench/doctor/training_facts.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "libcore/base/median.h"

namespace rw {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

void take_apart(const Json& json, const std::string& path, FlatRecord& out) {
  const auto below = [&](const std::string& key) { return path.empty() ? key : path + "." + key; };
  if (json.is_object()) {
    for (const auto& [key, value] : json.items()) take_apart(value, below(key), out);
  } else if (json.is_array()) {
    for (size_t i = 0; i < json.size(); ++i) take_apart(json[i], below(std::to_string(i)), out);
  } else if (json.is_boolean()) {
    out.numbers[path] = json.get<bool>() ? 1 : 0;
  } else if (json.is_number()) {
    out.numbers[path] = json.get<double>();
  } else if (json.is_string()) {
    out.words[path] = json.get<std::string>();
  }
}

}  // namespace

double FlatRecord::number(const std::string& path) const {
  const auto at = numbers.find(path);
  return at == numbers.end() ? kUnknown : at->second;
}

std::string FlatRecord::word(const std::string& path) const {
  const auto at = words.find(path);
  return at == words.end() ? "" : at->second;
}

double FlatRecord::sum(const std::string& path_prefix) const {
  double total = kUnknown;
  const std::string below = path_prefix + ".";
  for (auto at = numbers.lower_bound(below); at != numbers.end() && at->first.starts_with(below); ++at)
    total = std::isnan(total) ? at->second : total + at->second;
  return total;
}

int64_t FlatRecord::items(const std::string& list_path) const {
  int64_t n = 0;
  while (numbers.count(fmt::format("{}.{}", list_path, n)) > 0 || words.count(fmt::format("{}.{}", list_path, n)) > 0)
    ++n;
  return n;
}

FlatRecord flatten(const std::string& json_object) {
  FlatRecord out;
  const Json json = Json::parse(json_object, nullptr, false);
  if (json.is_object()) take_apart(json, "", out);
  return out;
}

RunView view_run(const RunRecords& run) {
  RunView view{.run = run,
               .settled = settled_steps(run),
               .identity = flatten(run.identity),
               .events = {},
               .resources = {},
               .hosts = {},
               .step_s = kUnknown};
  for (const EventRecord& e : run.events) view.events.push_back(flatten(e.line));
  for (const ResourceRecord& r : run.resources) view.resources.push_back(flatten(r.line));
  for (int64_t i = 0, n = view.identity.items("hosts"); i < n; ++i)
    view.hosts.push_back(view.identity.word(fmt::format("hosts.{}", i)));
  view.step_s = median_of(view.settled, [](const StepRecord& s) { return s.step_s; });
  return view;
}

std::vector<double> values_of(std::span<const StepRecord* const> steps, const StepValue& value) {
  std::vector<double> out;
  for (const StepRecord* s : steps)
    if (const double v = value(*s); std::isfinite(v)) out.push_back(v);
  return out;
}

double median_of(std::span<const StepRecord* const> steps, const StepValue& value) {
  const std::vector<double> values = values_of(steps, value);
  return values.empty() ? kUnknown : median(values);
}

double share_of_step(const StepRecord& step, double seconds) {
  return step.step_s > 0 ? seconds / step.step_s : kUnknown;
}

std::string steps_text(const RunView& view) {
  if (view.settled.empty()) return "metrics.jsonl";
  return fmt::format("metrics.jsonl, steps {} to {}", view.settled.front()->step, view.settled.back()->step);
}

double robust_slope(std::span<const double> values) {
  if (values.size() < 2) return kUnknown;
  const size_t n = std::min(values.size(), kSlopePoints);
  std::vector<double> slopes;
  const auto at = [&](size_t k) { return n == 1 ? 0 : k * (values.size() - 1) / (n - 1); };
  for (size_t a = 0; a < n; ++a)
    for (size_t b = a + 1; b < n; ++b)
      slopes.push_back((values[at(b)] - values[at(a)]) / static_cast<double>(at(b) - at(a)));
  return median(std::move(slopes));
}

void collect_trouble(Facts& facts) {
  struct Sign {
    const char* fact;
    double above;
    const char* words;
  };
  const Sign signs[] = {{"nonfinite.steps", 0, "steps that are not finite"},
                        {"spike.count", 0, "a loss that jumps"},
                        {"loss.flat", 0, "a loss that stands still"},
                        {"loss.frequencies_only", 0, "a loss that stands still"},
                        {"loss.rise", 0.5, "a loss that rises"},
                        {"loss.excursion", 0, "a loss that rises"},
                        {"norm.growth", 10, "gradients that grow"},
                        {"scale.skips_in_a_row", 4, "overflows of f16"},
                        {"scale.skipped_share", 0.1, "overflows of f16"},
                        {"lr.jump", 0, "a learning rate that jumps"},
                        {"data.repeated_windows", 0.3, "data that loops"},
                        {"bubble.of_layout", 0.2, "a pipeline that is empty"}};
  for (const Sign& sign : signs)
    if (const Fact* fact = facts.find(sign.fact); fact != nullptr && fact->value > sign.above) {
      facts.set("run.trouble", {1, sign.words, fact->where});
      return;
    }
}

Facts training_facts(const RunRecords& run) {
  const RunView view = view_run(run);
  Facts facts;
  if (!view.settled.empty()) {
    facts.set("step.s", {view.step_s, "", steps_text(view)});
    facts.set("steps", {static_cast<double>(run.steps.size()), "", "metrics.jsonl"});
  }
  collect_data_facts(view, facts);
  collect_communication_facts(view, facts);
  collect_resource_facts(view, facts);
  collect_checkpoint_facts(view, facts);
  collect_parameter_facts(view, facts);
  collect_stability_facts(view, facts);
  return facts;
}

}  // namespace rw
