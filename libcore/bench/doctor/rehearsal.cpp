#include "libcore/bench/doctor/rehearsal.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <sstream>
#include <string_view>

#include "libcore/bench/doctor/training_facts.h"

namespace rw {
namespace {

constexpr size_t kTold = 5;         // of each kind, in a fact's words
constexpr size_t kMostWords = 160;  // of a line

std::vector<MetricChange> metric_changes(const RunView& now, const RunView& before) {
  std::vector<MetricChange> out;
  const auto compare = [&](const std::string& name, const StepValue& value, bool is_share) {
    const double a = median_of(before.settled, value), b = median_of(now.settled, value);
    if (!std::isfinite(a) || !std::isfinite(b)) return;
    const bool differs =
        is_share ? std::fabs(b - a) > kShareChange : a > 0 && b > 0 && std::max(a / b, b / a) > kRateChange;
    if (differs) out.push_back({name, a, b});
  };
  for (size_t c = 0; c < static_cast<size_t>(TimeCategory::n_categories); ++c) {
    const auto category = static_cast<TimeCategory>(c);
    compare(
        fmt::format("{} share of a step", time_category_name(category)),
        [=](const StepRecord& s) { return share_of_step(s, s.second(category)); }, true);
  }
  compare(
      "mfu causal", [](const StepRecord& s) { return s.mfu_causal; }, false);
  compare(
      "gradient norm", [](const StepRecord& s) { return s.grad_norm; }, false);
  compare(
      "share of skipped steps", [](const StepRecord& s) { return s.skipped ? 1.0 : 0.0; }, true);
  std::stable_sort(out.begin(), out.end(), [](const MetricChange& a, const MetricChange& b) {
    const auto factor = [](const MetricChange& m) {
      return std::fabs(std::log(std::max(m.now, 1e-9) / std::max(m.before, 1e-9)));
    };
    return factor(a) > factor(b);
  });
  return out;
}

std::vector<NewLine> new_lines(const std::vector<std::pair<std::string, std::string>>& now,
                               const std::vector<std::pair<std::string, std::string>>& before) {
  std::set<std::string> known;
  for (const auto& [kind, line] : before) known.insert(kind);
  std::map<std::string, NewLine> found;
  for (const auto& [kind, line] : now) {
    if (kind.empty() || known.count(kind) > 0) continue;
    NewLine& n = found[kind];
    if (n.n++ == 0) n.kind = kind, n.line = line.substr(0, kMostWords);
  }
  std::vector<NewLine> out;
  for (auto& [kind, line] : found) out.push_back(std::move(line));
  std::stable_sort(out.begin(), out.end(), [](const NewLine& a, const NewLine& b) { return a.n > b.n; });
  return out;
}

std::vector<std::pair<std::string, std::string>> event_kinds(const RunView& view) {
  std::vector<std::pair<std::string, std::string>> out;
  for (size_t i = 0; i < view.events.size(); ++i) {
    const FlatRecord& e = view.events[i];
    std::string kind = e.word("event");
    for (const char* key : {"verdict", "reason", "error"})
      if (const std::string word = e.word(key); !word.empty())
        kind += ": " + (key == std::string_view("error") ? without_numbers(word) : word);
    out.emplace_back(kind, view.run.events[i].line);
  }
  return out;
}

std::vector<std::pair<std::string, std::string>> log_kinds(const std::string& log) {
  std::vector<std::pair<std::string, std::string>> out;
  std::istringstream in(log);
  for (std::string line; std::getline(in, line);) out.emplace_back(without_numbers(line), line);
  return out;
}

std::vector<ConfigChange> config_changes(const FlatRecord& now, const FlatRecord& before) {
  const auto text_of = [](const FlatRecord& r) {
    std::map<std::string, std::string> out;
    const auto is_compared = [](const std::string& path) {
      return path.starts_with("config.") || path.starts_with("layout.") || path == "precision" || path == "backend" ||
             path == "tool_version" || path == "threads_per_rank" || path == "global_batch" || path == "params";
    };
    for (const auto& [path, v] : r.numbers)
      if (is_compared(path)) out[path] = fmt::format("{:g}", v);
    for (const auto& [path, v] : r.words)
      if (is_compared(path) && path != "config.out" && path != "config.resume") out[path] = v;
    return out;
  };
  const auto a = text_of(before), b = text_of(now);
  std::vector<ConfigChange> out;
  const auto value = [](const auto& m, const std::string& key) {
    const auto at = m.find(key);
    return at == m.end() ? std::string() : at->second;
  };
  std::set<std::string> keys;
  for (const auto* m : {&a, &b})
    for (const auto& [key, v] : *m) keys.insert(key);
  for (const std::string& key : keys)
    if (value(a, key) != value(b, key)) out.push_back({key, value(a, key), value(b, key)});
  return out;
}

std::string or_none(const std::string& text) { return text.empty() ? "(none)" : text; }

template <typename Items, typename Text>
std::string list_of(const Items& items, const Text& text) {
  std::string out;
  for (size_t i = 0; i < items.size() && i < kTold; ++i) out += (i > 0 ? "; " : "") + text(items[i]);
  if (items.size() > kTold) out += fmt::format("; and {} more", items.size() - kTold);
  return out;
}

std::string metric_text(const MetricChange& m) { return fmt::format("{} {:.3g}, was {:.3g}", m.name, m.now, m.before); }
std::string config_text(const ConfigChange& c) {
  return fmt::format("{} {}, was {}", c.key, or_none(c.now), or_none(c.before));
}

// Kinds that are no trouble however new they are.
bool is_ordinary(const NewLine& line) {
  for (const char* kind : {"start", "end", "resume", "interrupted", "validation", "checkpoint", "checkpoint_requested",
                           "checkpoint_written", "checkpoint_interval", "replica_check", "verify_parallel"})
    if (line.kind == kind) return true;
  return false;
}

}  // namespace

std::string without_numbers(const std::string& line) {
  std::string out;
  for (size_t i = 0; i < line.size();) {
    const auto is_word = [&](size_t k) {
      return k < line.size() && (std::isalnum(static_cast<unsigned char>(line[k])) != 0 || line[k] == '.' ||
                                 line[k] == '/' || line[k] == '_');
    };
    if (!is_word(i)) {
      out += line[i++];
      continue;
    }
    size_t end = i;
    bool has_digit = false, has_slash = false;
    const auto is_exponent = [&](size_t k) {  // the sign in 2.5e-3
      return k >= i + 2 && k + 1 < line.size() && (line[k] == '-' || line[k] == '+') && line[k - 1] == 'e' &&
             std::isdigit(static_cast<unsigned char>(line[k - 2])) != 0 &&
             std::isdigit(static_cast<unsigned char>(line[k + 1])) != 0;
    };
    for (; is_word(end) || is_exponent(end); ++end) {
      has_digit = has_digit || std::isdigit(static_cast<unsigned char>(line[end])) != 0;
      has_slash = has_slash || line[end] == '/';
    }
    std::string word = line.substr(i, end - i);
    if (has_slash || has_digit) word = "#";
    out += word;
    i = end;
  }
  return out;
}

Rehearsal compare_with_rehearsal(const RunRecords& run, const RunRecords& rehearsal) {
  const RunView now = view_run(run), before = view_run(rehearsal);
  Rehearsal out;
  out.metrics = metric_changes(now, before);
  out.events = new_lines(event_kinds(now), event_kinds(before));
  std::erase_if(out.events, is_ordinary);
  if (!run.log.empty() && !rehearsal.log.empty()) out.log = new_lines(log_kinds(run.log), log_kinds(rehearsal.log));
  out.config = config_changes(now.identity, before.identity);
  return out;
}

void collect_rehearsal_facts(const Rehearsal& rehearsal, Facts& facts) {
  const auto set = [&](const char* name, size_t n, const std::string& text) {
    if (n > 0) facts.set(name, {static_cast<double>(n), text, "both runs' records"});
  };
  set("baseline.metrics", rehearsal.metrics.size(), list_of(rehearsal.metrics, metric_text));
  set("baseline.events", rehearsal.events.size(),
      list_of(rehearsal.events, [](const NewLine& l) { return fmt::format("{} x {}", l.n, l.kind); }));
  set("baseline.log", rehearsal.log.size(), list_of(rehearsal.log, [](const NewLine& l) { return l.line; }));
  set("baseline.config", rehearsal.config.size(), list_of(rehearsal.config, config_text));
}

std::vector<Rule> rehearsal_rules() {
  using enum Condition::Op;
  constexpr Layer layer = Layer::parameters;
  return {
      {"baseline.metrics",
       layer,
       Severity::warning,
       0.45,
       {{present, "baseline.metrics"}},
       "It behaves otherwise than the rehearsal: {baseline.metrics:text}.",
       "Begin with the first that the scale alone does not explain.",
       "dbench report {dir} {baseline} -o report.html"},
      {"baseline.events",
       layer,
       Severity::warning,
       0.45,
       {{present, "baseline.events"}},
       "Events that the rehearsal never had: {baseline.events:text}.",
       "Look at the first of them.",
       "dbench report {dir} {baseline} -o report.html"},
      {"baseline.log",
       layer,
       Severity::info,
       0.4,
       {{present, "baseline.log"}},
       "Lines in the log that the rehearsal never wrote: {baseline.log:text}.",
       "",
       "dbench doctor --logs {dir}"},
      {"baseline.config",
       layer,
       Severity::info,
       0.4,
       {{present, "baseline.config"}},
       "Settings that differ from the rehearsal's: {baseline.config:text}.",
       "",
       ""},
  };
}

std::vector<std::string> rehearsal_notes(const Rehearsal& rehearsal) {
  std::vector<std::string> out;
  for (const MetricChange& m : rehearsal.metrics) out.push_back("beside the rehearsal: " + metric_text(m));
  for (const NewLine& l : rehearsal.events) out.push_back(fmt::format("not in the rehearsal ({} x): {}", l.n, l.line));
  for (const NewLine& l : rehearsal.log)
    out.push_back(fmt::format("not in the rehearsal's log ({} x): {}", l.n, l.line));
  for (const ConfigChange& c : rehearsal.config) out.push_back("set otherwise: " + config_text(c));
  return out;
}

}  // namespace rw
