#include "libcore/bench/doctor/finding.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "libcore/base/check.h"
#include "libcore/base/units.h"

namespace rw {
namespace {

constexpr double kFewDigits = 1e5;  // above: with a suffix

std::string short_number(double v) {
  if (!std::isfinite(v)) return "unknown";
  if (std::fabs(v) >= kFewDigits) return format_count(v);
  return fmt::format("{:.3g}", v);
}
// format_seconds has tenths of seconds; most of what is told here is shorter.
std::string seconds_text(double s) {
  if (!std::isfinite(s)) return "unknown";
  if (s < 1e-3) return fmt::format("{:.3g} us", s * 1e6);
  if (s < 1) return fmt::format("{:.3g} ms", s * 1e3);
  if (s < 100) return fmt::format("{:.3g} s", s);
  return format_seconds(s);
}

bool is_met(const Condition& c, const Facts& facts) {
  const Fact* fact = facts.find(c.fact);
  const bool known = fact != nullptr && !std::isnan(fact->value);
  switch (c.op) {
    case Condition::Op::above: return known && fact->value > c.threshold;
    case Condition::Op::below: return known && fact->value < c.threshold;
    case Condition::Op::present: return fact != nullptr;
    case Condition::Op::absent: return fact == nullptr;
  }
  return false;
}

std::string filled(const std::string& form, const Facts& facts, const std::map<std::string, std::string>& names,
                   std::set<std::string>* used) {
  std::string out;
  for (size_t i = 0; i < form.size();) {
    if (form[i] != '{') {
      out += form[i++];
      continue;
    }
    const size_t end = form.find('}', i);
    CHECK(end != std::string::npos, "a rule's text has a { without }: %s", form.c_str());
    const std::string inside = form.substr(i + 1, end - i - 1);
    i = end + 1;
    if (const auto name = names.find(inside); name != names.end()) {
      out += name->second;
      continue;
    }
    const size_t colon = inside.find(':');
    const std::string key = inside.substr(0, colon), how = colon == std::string::npos ? "" : inside.substr(colon + 1);
    const Fact* fact = facts.find(key);
    if (fact == nullptr) {
      out += "unknown";
      continue;
    }
    if (used != nullptr) used->insert(key);
    if (how == "text") out += fact->text.empty() ? "unknown" : fact->text;
    else if (!std::isfinite(fact->value)) out += "unknown";
    else if (how == "%") out += fmt::format("{:.3g} %", 100 * fact->value);
    else if (how == "s") out += seconds_text(fact->value);
    else if (how == "bytes") out += format_bytes(fact->value);
    else out += short_number(fact->value);
  }
  return out;
}

bool before(const Finding& a, const Finding& b) {
  const auto is = [&](Severity s) { return std::pair(a.severity == s, b.severity == s); };
  if (const auto [first, second] = is(Severity::failure); first != second) return first;
  if (const auto [first, second] = is(Severity::info); first != second) return second;
  if (a.layer != b.layer) return a.layer < b.layer;
  return a.confidence > b.confidence;
}

}  // namespace

const char* layer_name(Layer layer) {
  switch (layer) {
    case Layer::data_flow: return "data flow";
    case Layer::communication: return "communication";
    case Layer::resources: return "resources";
    case Layer::parameters: return "parameters";
  }
  return "";
}

const char* severity_name(Severity severity) {
  switch (severity) {
    case Severity::info: return "info";
    case Severity::warning: return "warning";
    case Severity::failure: return "failure";
  }
  return "";
}

const Fact* Facts::find(const std::string& name) const {
  const auto at = facts_.find(name);
  return at == facts_.end() ? nullptr : &at->second;
}

std::vector<Finding> diagnose(const std::vector<Rule>& rules, const Facts& facts,
                              const std::map<std::string, std::string>& names) {
  std::vector<Finding> met;
  std::map<std::string, const Rule*> rule_of;
  for (const Rule& rule : rules) {
    CHECK(rule_of.emplace(rule.id, &rule).second, "two rules are called %s", rule.id);
    if (!std::all_of(rule.when.begin(), rule.when.end(), [&](const Condition& c) { return is_met(c, facts); }))
      continue;
    std::set<std::string> used;
    Finding f;
    f.id = rule.id;
    f.layer = rule.layer;
    f.severity = rule.severity;
    f.confidence = rule.confidence;
    f.explanation = filled(rule.explanation, facts, names, &used);
    f.fix = filled(rule.fix, facts, names, nullptr);
    f.next = filled(rule.next, facts, names, nullptr);
    for (const Condition& c : rule.when)
      if (c.op != Condition::Op::absent) used.insert(c.fact);
    for (const std::string& key : used) f.evidence.emplace_back(key, *facts.find(key));
    met.push_back(std::move(f));
  }
  std::stable_sort(met.begin(), met.end(), before);
  // The first cause, in the order they are asked, that a rule names and that holds. A cause that is only worth an info
  // explains nothing that is worth a warning.
  for (Finding& f : met)
    for (const Finding& cause : met) {
      const std::vector<const char*>& of = rule_of.at(f.id)->effect_of;
      const bool is_named = std::any_of(of.begin(), of.end(), [&](const char* id) { return cause.id == id; });
      if (!is_named || cause.id == f.id) continue;
      if (cause.severity == Severity::info && f.severity != Severity::info) continue;
      f.effect_of = cause.id;
      break;
    }
  std::vector<Finding> out;
  std::set<std::string> told;
  const auto tell = [&](const auto& self, const Finding& f) -> void {
    if (!told.insert(f.id).second) return;
    out.push_back(f);
    for (const Finding& effect : met)
      if (effect.effect_of == f.id) self(self, effect);
  };
  for (const Finding& f : met)
    if (f.effect_of.empty()) tell(tell, f);
  // Rules that name one another in a circle: the first stands as the cause.
  for (const Finding& f : met)
    if (!told.count(f.id)) {
      Finding cause = f;
      cause.effect_of.clear();
      tell(tell, cause);
    }
  // An info is never told before a warning, not even as its cause's effect.
  std::stable_partition(out.begin(), out.end(), [](const Finding& f) { return f.severity != Severity::info; });
  return out;
}

Json finding_json(const Finding& finding) {
  Json evidence = Json::object();
  for (const auto& [name, fact] : finding.evidence) {
    Json e = {{"value", std::isfinite(fact.value) ? Json(fact.value) : Json(nullptr)}};
    if (!fact.text.empty()) e["text"] = fact.text;
    if (!fact.where.empty()) e["where"] = fact.where;
    evidence[name] = e;
  }
  Json out = {{"id", finding.id},
              {"layer", layer_name(finding.layer)},
              {"severity", severity_name(finding.severity)},
              {"confidence", finding.confidence},
              {"explanation", finding.explanation},
              {"fix", finding.fix},
              {"next", finding.next},
              {"evidence", evidence}};
  if (!finding.effect_of.empty()) out["effect_of"] = finding.effect_of;
  return out;
}

std::string finding_text(const Finding& finding) {
  const char* indent = finding.effect_of.empty() ? "" : "    ";
  std::string out = fmt::format("{}{} [{}, {}, confidence {:.0f} %]\n", indent, severity_name(finding.severity),
                                layer_name(finding.layer), finding.id, 100 * finding.confidence);
  if (!finding.effect_of.empty()) out += fmt::format("{}  an effect of {}\n", indent, finding.effect_of);
  out += fmt::format("{}  {}\n", indent, finding.explanation);
  for (const auto& [name, fact] : finding.evidence) {
    out += fmt::format("{}  - {}: {}", indent, name, short_number(fact.value));
    if (!fact.text.empty()) out += fmt::format(" ({})", fact.text);
    if (!fact.where.empty()) out += fmt::format(", from {}", fact.where);
    out += '\n';
  }
  if (!finding.fix.empty()) out += fmt::format("{}  fix:  {}\n", indent, finding.fix);
  if (!finding.next.empty()) out += fmt::format("{}  next: {}\n", indent, finding.next);
  return out;
}

}  // namespace rw
