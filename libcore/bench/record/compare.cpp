#include "libcore/bench/record/compare.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "libcore/base/error.h"
#include "libcore/base/rng.h"

namespace rw {
namespace {

using Runs = std::vector<const BenchRecord*>;
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

Runs runs_of(const std::vector<BenchRecord>& records, const BenchRecord& like) {
  Runs runs;
  for (const BenchRecord& r : records)
    if (r.bench == like.bench && r.name == like.name) runs.push_back(&r);
  return runs;
}

// The first record of each case.
Runs cases_of(const std::vector<BenchRecord>& records) {
  Runs cases;
  std::set<std::pair<std::string, std::string>> seen;
  for (const BenchRecord& r : records)
    if (seen.insert({r.bench, r.name}).second) cases.push_back(&r);
  return cases;
}

std::vector<std::string> names_of(const std::vector<BenchRecord>& records) {
  std::vector<std::string> names;
  for (const BenchRecord* r : cases_of(records)) names.push_back("\"" + r->name + "\"");
  return names;
}

bool is_wanted(const std::string& name, const CompareSpec& spec) {
  return spec.metric.empty() || std::any_of(spec.metric.begin(), spec.metric.end(), [&](const std::string& pattern) {
           return name.starts_with(pattern) || ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
         });
}

std::vector<double> without_nan(std::vector<double> values) {
  std::erase_if(values, [](double v) { return std::isnan(v); });
  return values;
}

// Of one run its samples; of several the median of each.
std::vector<double> samples_of(const Runs& runs, const std::string& metric) {
  std::vector<double> samples;
  for (const BenchRecord* run : runs) {
    const BenchMetric* m = find_metric(*run, metric);
    if (runs.size() == 1) return m->samples;
    samples.push_back(m == nullptr ? kNone : quantile_of(without_nan(m->samples), 0.5));
  }
  return samples;
}

// All samples of all runs: a count is exact in each.
std::vector<double> all_samples_of(const Runs& runs, const std::string& metric) {
  std::vector<double> samples;
  for (const BenchRecord* run : runs)
    if (const BenchMetric* m = find_metric(*run, metric))
      for (const double v : m->samples)
        if (!std::isnan(v)) samples.push_back(v);
  return samples;
}

// The metrics of all runs, in the order in which they first occur.
std::vector<const BenchMetric*> metrics_of(const Runs& runs, const CompareSpec& spec) {
  std::vector<const BenchMetric*> metrics;
  std::set<std::string> seen;
  for (const BenchRecord* run : runs)
    for (const BenchMetric& m : run->metrics)
      if (is_wanted(m.name, spec) && seen.insert(m.name).second) metrics.push_back(&m);
  return metrics;
}

const BenchMetric* find(const std::vector<const BenchMetric*>& metrics, const std::string& name) {
  const auto it = std::find_if(metrics.begin(), metrics.end(), [&](const BenchMetric* m) { return m->name == name; });
  return it == metrics.end() ? nullptr : *it;
}

void fill_medians(Change& c, const std::vector<double>& base, const std::vector<double>& now) {
  c.n_base = static_cast<int64_t>(base.size());
  c.n_now = static_cast<int64_t>(now.size());
  c.base = quantile_of(base, 0.5);
  c.now = quantile_of(now, 0.5);
  c.ratio = c.base != 0 ? c.now / c.base : c.now == 0 ? 1 : kNone;
  c.low = c.high = c.ratio;
  c.p_worse = kNone;
}

// The worst that either side showed: a count that differs between repeats is as bad as its worst.
Change judge_count(const std::vector<double>& base, const std::vector<double>& now, Better better) {
  Change c;
  fill_medians(c, base, now);
  if (base.empty() || now.empty()) {
    c.verdict = ChangeVerdict::too_noisy;
    c.why = base.empty() ? "base has no samples" : "new has no samples";
    return c;
  }
  const bool lower = better == Better::lower;
  const double b = lower ? *std::max_element(base.begin(), base.end()) : *std::min_element(base.begin(), base.end());
  const double n = lower ? *std::max_element(now.begin(), now.end()) : *std::min_element(now.begin(), now.end());
  c.base = b;
  c.now = n;
  c.ratio = c.low = c.high = b != 0 ? n / b : n == 0 ? 1 : kNone;
  if (n == b) {
    c.why = "the same count";
    return c;
  }
  c.verdict = (n > b) == lower ? ChangeVerdict::worse : ChangeVerdict::better;
  c.why = "a count: any change is one";
  return c;
}

bool is_quiet(const Runs& runs) {
  return std::all_of(runs.begin(), runs.end(), [](const BenchRecord* r) { return r->quiet; });
}

Change judge_time(const Runs& base, const Runs& now, const BenchMetric& metric, const CompareSpec& spec) {
  const std::vector<double> b = samples_of(base, metric.name), n = samples_of(now, metric.name);
  ChangeQuestion q;
  q.base = b;
  q.now = n;
  q.paired = spec.paired;
  q.lower_is_better = metric.better == Better::lower;
  q.threshold = parse_threshold(spec.threshold);
  q.confidence = spec.confidence;
  q.seed = rng_key(static_cast<uint64_t>(spec.seed), metric.name);
  q.quiet = is_quiet(base) && is_quiet(now);
  if (q.paired && b.size() != n.size())
    fail(ErrorKind::input,
         "{}, metric \"{}\": --paired expected equally many samples of both, found {} and {}; leave --paired out",
         case_name(*base.front()), metric.name, b.size(), n.size());
  return judge_change(q);
}

// What differs of two machines, for people.
std::string difference(const BenchRecord& a, const BenchRecord& b) {
  std::string text;
  for (const char* key : {"cpu_model", "cpus", "memory_bytes", "backend"})
    if (const std::string x = machine_of(a, key), y = machine_of(b, key); x != y)
      text += fmt::format("{}{} \"{}\" and \"{}\"", text.empty() ? "" : ", ", key, x, y);
  return text.empty() ? "nothing else that they say" : text;
}

void check_machines(const Runs& base, const Runs& now, const CompareSpec& spec, CaseChange& out) {
  for (const Runs* runs : {&base, &now})
    for (const BenchRecord* run : *runs) {
      const std::string a = machine_of(*base.front(), "fingerprint"), b = machine_of(*run, "fingerprint");
      if (a == b) continue;
      const std::string what =
          fmt::format("{}: machines {} and {} differ: {}", case_name(*run), a.empty() ? "(unknown)" : a,
                      b.empty() ? "(unknown)" : b, difference(*base.front(), *run));
      if (!spec.any_machine)
        fail(ErrorKind::input,
             "{}; times of two machines say nothing of the code: measure both on one, or give --any-machine", what);
      out.notes.push_back(what);
      return;
    }
}

// A metric is one thing in all records, or its samples cannot be put beside each other.
void check_meaning(const Runs& base, const Runs& now, const BenchMetric& like) {
  for (const Runs* runs : {&base, &now})
    for (const BenchRecord* run : *runs) {
      const BenchMetric* m = find_metric(*run, like.name);
      if (m == nullptr || (m->unit == like.unit && m->kind == like.kind && m->better == like.better)) continue;
      const auto said = [](const BenchMetric& x) {
        return fmt::format("unit \"{}\", {}, better {}", x.unit, metric_kind_name(x.kind), better_name(x.better));
      };
      fail(ErrorKind::input,
           "{}, metric \"{}\": expected one unit, kind and better way in all records, found {} and {}", case_name(*run),
           like.name, said(like), said(*m));
    }
}

// The records of `now`, those of a pair's new name under its base name.
std::vector<BenchRecord> renamed(std::vector<BenchRecord> now, const std::vector<BenchRecord>& base,
                                 const CompareSpec& spec) {
  const auto is_named = [](const std::vector<BenchRecord>& records, const std::string& name) {
    return std::any_of(records.begin(), records.end(), [&](const BenchRecord& r) { return r.name == name; });
  };
  for (const std::string& pair : spec.pair) {
    bool found = false;
    for (size_t at = pair.find('='); at != std::string::npos && !found; at = pair.find('=', at + 1)) {
      const std::string from = pair.substr(0, at), to = pair.substr(at + 1);
      if (!is_named(base, from) || !is_named(now, to)) continue;
      found = true;
      if (from == to) continue;
      if (is_named(now, from)) fail(ErrorKind::usage, "--pair {}: new has a case \"{}\" of its own", pair, from);
      for (BenchRecord& r : now)
        if (r.name == to) r.name = from;
    }
    if (!found)
      fail(ErrorKind::usage, "--pair {}: expected BASE=NEW, a name of a case in each, found base {} and new {}", pair,
           listed(names_of(base)), listed(names_of(now)));
  }
  return now;
}

std::string config_difference(const BenchRecord& a, const BenchRecord& b) {
  const Json x = parse_json(a.config.empty() ? "{}" : a.config, "config"),
             y = parse_json(b.config.empty() ? "{}" : b.config, "config");
  const auto text = [](const Json& j, const std::string& key) {
    return j.contains(key) ? j[key].dump(-1, ' ', false, Json::error_handler_t::replace) : std::string("none");
  };
  std::set<std::string> keys;
  for (const Json* j : {&x, &y})
    for (const auto& item : j->items()) keys.insert(item.key());
  std::string out;
  for (const std::string& key : keys)
    if (text(x, key) != text(y, key))
      out += fmt::format("{}{} {} -> {}", out.empty() ? "" : ", ", key, text(x, key), text(y, key));
  return out;
}

CaseChange compare_case(const Runs& base, const Runs& now, const CompareSpec& spec) {
  CaseChange out;
  out.bench = base.front()->bench;
  out.name = base.front()->name;
  out.runs_base = static_cast<int64_t>(base.size());
  out.runs_now = static_cast<int64_t>(now.size());
  check_machines(base, now, spec, out);
  if (const std::string flags = config_difference(*base.front(), *now.front()); !flags.empty())
    out.notes.push_back("measured with other flags: " + flags);
  if ((base.size() == 1) != (now.size() == 1))
    out.notes.push_back(
        fmt::format("a run is a sample where there are several: base has {}, new {}", base.size(), now.size()));
  const bool quiet = is_quiet(base) && is_quiet(now);
  if (!quiet)
    out.notes.push_back(fmt::format("the machine was not quiet when {} measured{}",
                                    is_quiet(base)  ? "new was"
                                    : is_quiet(now) ? "base was"
                                                    : "both were",
                                    spec.noisy ? "" : ": no verdict on times but \"same\" (--noisy: believe them)"));
  const auto base_metrics = metrics_of(base, spec), now_metrics = metrics_of(now, spec);
  for (const BenchMetric* m : now_metrics)
    if (find(base_metrics, m->name) == nullptr) out.added.push_back(m->name);
  for (const BenchMetric* m : base_metrics) {
    const BenchMetric* other = find(now_metrics, m->name);
    if (other == nullptr) {
      out.missing.push_back(m->name);
      continue;
    }
    check_meaning(base, now, *m);
    MetricChange change{.name = m->name, .unit = m->unit, .kind = m->kind, .change = {}};
    if (m->better == Better::neither || (m->kind == MetricKind::count && spec.counts == "ignore"))
      change.kind = MetricKind::fact;
    if (change.kind == MetricKind::fact)
      fill_medians(change.change, all_samples_of(base, m->name), all_samples_of(now, m->name));
    else if (m->kind == MetricKind::count)
      change.change = judge_count(all_samples_of(base, m->name), all_samples_of(now, m->name), m->better);
    else change.change = judge_time(base, now, *m, spec);
    Change& c = change.change;
    if (change.kind == MetricKind::time && !quiet && !spec.noisy &&
        (c.verdict == ChangeVerdict::worse || c.verdict == ChangeVerdict::better)) {
      c.why = fmt::format("{} if the machine had been quiet: {}", change_verdict_name(c.verdict), c.why);
      c.verdict = ChangeVerdict::too_noisy;
    }
    out.metrics.push_back(std::move(change));
  }
  return out;
}

// Among many metrics some changes are luck.
void doubt_many(Comparison& comparison, double level) {
  std::vector<Change*> times;
  std::vector<double> worse, better;
  for (CaseChange& c : comparison.cases)
    for (MetricChange& m : c.metrics)
      if (m.kind == MetricKind::time && !std::isnan(m.change.p_worse)) {
        times.push_back(&m.change);
        worse.push_back(m.change.p_worse);
        better.push_back(1 - m.change.p_worse);
      }
  if (times.size() < 2) return;
  const std::vector<bool> is_worse = control_false_discoveries(worse, level),
                          is_better = control_false_discoveries(better, level);
  for (size_t i = 0; i < times.size(); ++i) {
    Change& c = *times[i];
    if ((c.verdict != ChangeVerdict::worse || is_worse[i]) && (c.verdict != ChangeVerdict::better || is_better[i]))
      continue;
    c.why =
        fmt::format("{} alone, but among {} metrics it can be luck; --metric asks about fewer", c.why, times.size());
    c.verdict = ChangeVerdict::too_noisy;
  }
}

}  // namespace

FieldList fields(CompareSpec& s) {
  return {
      {.name = "metric",
       .value = &s.metric,
       .help = "only metrics whose name begins so, or matches this glob; may repeat"},
      {.name = "pair", .value = &s.pair, .help = "BASE=NEW: compare these cases though their names differ; may repeat"},
      {.name = "threshold", .value = &s.threshold, .help = "a smaller change of a time is no regression: 5% or 0.05"},
      {.name = "confidence",
       .value = &s.confidence,
       .help = "of a verdict: alarms without a change are at most the rest",
       .min = 0.8,
       .max = 0.9999},
      {.name = "paired", .value = &s.paired, .help = "sample (or run) i of both was taken side by side"},
      {.name = "counts",
       .value = &s.counts,
       .help = "any change of a count to the bad side is a regression, or none is",
       .choices = {"exact", "ignore"}},
      {.name = "any-machine", .value = &s.any_machine, .help = "compare though the machines differ"},
      {.name = "noisy", .value = &s.noisy, .help = "believe times though the machine was not quiet"},
      {.name = "seed", .value = &s.seed, .help = "of the resampling", .min = 0, .max = 1e18},
  };
}

double parse_threshold(const std::string& text) {
  const bool is_percent = text.ends_with('%');
  std::string_view digits = text;
  if (is_percent) digits.remove_suffix(1);
  double v = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), v);
  if (is_percent) v /= 100;
  if (error != std::errc() || end != digits.data() + digits.size() || !(v > 0 && v < 1))
    fail(ErrorKind::usage, "--threshold: expected a share of the base above 0 and below 1, as 5% or 0.05, found \"{}\"",
         text);
  return v;
}

std::string listed(const std::vector<std::string>& names, const char* between) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : between) + name;
  return names.empty() ? "none" : out;
}

std::string case_name(const BenchRecord& r) { return fmt::format("{} \"{}\"", r.bench, r.name); }

std::string machine_of(const BenchRecord& r, const char* key) {
  const Json machine = parse_json(r.machine.empty() ? "{}" : r.machine, "machine of " + case_name(r));
  const auto it = machine.find(key);
  if (it == machine.end() || it->is_null()) return {};
  return it->is_string() ? it->get<std::string>() : it->dump();
}

int64_t Comparison::count(ChangeVerdict verdict) const {
  int64_t n = 0;
  for (const CaseChange& c : cases)
    for (const MetricChange& m : c.metrics) n += m.kind != MetricKind::fact && m.change.verdict == verdict;
  return n;
}

Comparison compare_records(const std::vector<BenchRecord>& base, const std::vector<BenchRecord>& all_new,
                           const CompareSpec& spec) {
  Comparison out;
  const std::vector<BenchRecord> now = renamed(all_new, base, spec);
  bool any_metric = false;
  for (const BenchRecord* one : cases_of(base)) {
    const Runs b = runs_of(base, *one), n = runs_of(now, *one);
    if (n.empty()) {
      out.missing.push_back(case_name(*one));
      continue;
    }
    out.cases.push_back(compare_case(b, n, spec));
    for (const std::string& pair : spec.pair)
      if (pair.starts_with(one->name + "="))
        out.cases.back().notes.push_back(fmt::format("new is \"{}\" (--pair)", pair.substr(one->name.size() + 1)));
    any_metric = any_metric || !out.cases.back().metrics.empty();
  }
  for (const BenchRecord* one : cases_of(now))
    if (runs_of(base, *one).empty()) out.added.push_back(case_name(*one));
  if (out.cases.empty())
    fail(ErrorKind::input,
         "expected records of one case (bench and name) in both, found {} and {}; --pair BASE=NEW compares two names",
         listed(out.missing), listed(out.added));
  if (!any_metric)
    fail(ErrorKind::input, "{}: expected a metric that both have{}, found none", out.cases.front().bench,
         spec.metric.empty() ? std::string() : " named " + listed(spec.metric, " or "));
  doubt_many(out, 1 - spec.confidence);
  return out;
}

}  // namespace rw
