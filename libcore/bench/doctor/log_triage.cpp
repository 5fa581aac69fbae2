#include "libcore/bench/doctor/log_triage.h"

#include <fmt/core.h>

#include <algorithm>
#include <tuple>

#include "libcore/bench/doctor/log_triage_read.h"

namespace rw {
namespace {

// Clocks of hosts that are kept by NTP differ by less.
constexpr double kClockSlackS = 2;
// A watchdog's patience and a checkpoint's wait are below it: what stopped longer before a failure did not cause it.
constexpr double kLongBeforeS = 3600;

bool has_wall(const LogHits& h) { return h.first.time.clock == LogTime::Clock::wall; }

// Whether b's first line came clearly before a's, as far as their clocks say.
bool came_after(const LogHits& a, const LogHits& b) {
  if (has_wall(a) && has_wall(b)) return a.first.time.s > b.first.time.s + kClockSlackS;
  const bool one_machine = a.first.file == b.first.file && a.first.time.clock == LogTime::Clock::uptime &&
                           b.first.time.clock == LogTime::Clock::uptime;
  return one_machine && a.first.time.s > b.first.time.s;
}

bool is_old(const LogHits& cause, const LogHits& effect) {
  return has_wall(cause) && has_wall(effect) && cause.last_s < effect.first.time.s - kLongBeforeS;
}

struct Judged {
  const LogHits* hits;
  Severity severity;
  const Judged* because = nullptr;
};

bool explains(const Judged& a, const Judged& b) {
  const LogRule &cause = *a.hits->rule, &effect = *b.hits->rule;
  if (&cause == &effect || a.severity == Severity::info || came_after(*a.hits, *b.hits) || is_old(*a.hits, *b.hits))
    return false;
  if (std::any_of(effect.effect_of.begin(), effect.effect_of.end(),
                  [&](std::string_view id) { return id == cause.id; }))
    return true;
  // A warning (a hot processor, a link that went down for a moment) may make ranks late; it kills none.
  return cause.depth < effect.depth && (a.severity == Severity::failure || effect.depth >= LogDepth::peer);
}

// Findings by severity, then by time where all clocks say it, else those nearest to a cause and to the machine first.
void order(std::vector<Judged*>& all) {
  const bool by_time = std::all_of(all.begin(), all.end(),
                                   [](const Judged* j) { return j->severity == Severity::info || has_wall(*j->hits); });
  const auto key = [&](const Judged* j) {
    const LogRule& r = *j->hits->rule;
    return std::make_tuple(-static_cast<int>(j->severity), by_time ? j->hits->first.time.s : 0.0,
                           static_cast<int>(r.depth), -static_cast<int>(r.source), -r.confidence);
  };
  std::stable_sort(all.begin(), all.end(), [&](const Judged* a, const Judged* b) { return key(a) < key(b); });
}

// What the kernel noted long before anything failed is no news.
void demote_old(std::vector<Judged>& all) {
  const LogHits* failed = nullptr;
  for (const Judged& j : all)
    if (j.severity == Severity::failure && j.hits->rule->source != LogSource::kernel && has_wall(*j.hits) &&
        (failed == nullptr || j.hits->first.time.s < failed->first.time.s))
      failed = j.hits;
  for (Judged& j : all)
    if (failed != nullptr && j.hits->rule->source == LogSource::kernel && is_old(*j.hits, *failed))
      j.severity = Severity::info;
}

// A cause is nearer to the machine than its effect, or named by it: there are no circles.
const Judged& root_of(const Judged& j) { return j.because == nullptr ? j : root_of(*j.because); }

std::vector<Judged> judge(const std::vector<LogHits>& hits) {
  std::vector<Judged> all;
  all.reserve(hits.size());  // `because` points into it
  for (const LogHits& h : hits) all.push_back({.hits = &h, .severity = h.rule->severity});
  demote_old(all);
  std::vector<Judged*> in_order;
  for (Judged& j : all) in_order.push_back(&j);
  order(in_order);
  for (Judged* effect : in_order)
    for (const Judged* cause : in_order) {
      const bool nearer = effect->because == nullptr || cause->hits->rule->depth < effect->because->hits->rule->depth;
      if (nearer && explains(*cause, *effect)) effect->because = cause;
    }
  return all;
}

template <class Values>
std::string listed(const char* one, const char* many, const Values& values) {
  std::string text;
  size_t n = 0;
  for (const auto& value : values) {
    if (n == 8) return fmt::format("{} {} and {} more", many, text, values.size() - n);
    text += fmt::format("{}{}", n++ == 0 ? "" : ", ", value);
  }
  return values.empty() ? "" : fmt::format("{} {}", n == 1 ? one : many, text);
}

std::string who(const LogHits& h) {
  const std::string ranks = listed("rank", "ranks", h.ranks), hosts = listed("host", "hosts", h.hosts);
  if (ranks.empty() || hosts.empty()) return ranks + hosts;
  return ranks + ", " + hosts;
}

Finding finding_of(const Judged& j, const std::string& dir) {
  const LogHits& h = *j.hits;
  const LogRule& rule = *h.rule;
  Finding f;
  f.id = rule.id;
  f.layer = rule.layer;
  f.severity = j.severity;
  f.confidence = rule.confidence;
  const std::string names = who(h);
  f.explanation =
      fmt::format("{}: {}{}", log_source_name(rule.source), rule.explanation, names.empty() ? "" : " (" + names + ")");
  f.fix = rule.fix;
  f.next = rule.next;
  if (const size_t at = f.next.find("{dir}"); at != std::string::npos) f.next.replace(at, 5, dir);
  const std::string where = fmt::format("{}:{}", h.first.file, h.first.line);
  f.evidence.emplace_back("lines", Fact{.value = static_cast<double>(h.count), .text = h.first.text, .where = where});
  if (j.because != nullptr) f.effect_of = root_of(j).hits->rule->id;
  return f;
}

}  // namespace

Diagnosis triage_logs(const std::filesystem::path& target) {
  const LogReading reading = read_logs(target, kMaxLogBytes);
  Diagnosis d;
  d.target = target.string();
  d.kind = "logs";
  d.notes = reading.notes;
  const auto count = [&](const char* name, int64_t n) {
    d.facts.set(name, {.value = static_cast<double>(n), .text = "", .where = target.string()});
  };
  count("logs.files", reading.files);
  count("logs.lines", reading.lines);
  count("logs.bytes", reading.bytes);
  std::vector<Judged> all = judge(reading.hits);
  std::vector<Judged*> roots, effects;
  for (Judged& j : all) (&root_of(j) == &j ? roots : effects).push_back(&j);
  order(effects);
  // A warning that made something fail was a failure.
  for (Judged* cause : roots)
    for (const Judged* effect : effects)
      if (&root_of(*effect) == cause) cause->severity = std::max(cause->severity, effect->severity);
  order(roots);
  const auto tell = [&](const Judged& j) {
    d.findings.push_back(finding_of(j, target.string()));
    d.facts.set(std::string("logs.") + j.hits->rule->id, d.findings.back().evidence.front().second);
  };
  for (const Judged* cause : roots) {
    tell(*cause);
    for (const Judged* effect : effects)
      if (&root_of(*effect) == cause) tell(*effect);
  }
  return d;
}

}  // namespace rw
