#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "libcore/bench/record/statistics.h"
#include "libcore/bench/report/html.h"
#include "libcore/bench/report/sections.h"
#include "libcore/bench/report/svg_chart.h"

namespace rw {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr size_t kMostCompared = 8, kMostMetrics = 400, kMostBars = 30;

std::string colour_at(size_t i) { return fmt::format("s{}", i % 8); }

std::string figure(const Chart& chart, const std::string& caption) {
  return html_figure(
      {.title = chart.title, .picture = chart_svg(chart), .legend = chart_legend(chart), .caption = caption});
}

std::string overlay(const std::vector<ReportRun>& runs, const std::string& title, const std::string& axis,
                    double StepRecord::*member, const std::string& caption) {
  Chart chart;
  chart.title = title;
  chart.description = title + " of all runs over the steps, a line a run.";
  chart.x.label = "step";
  chart.y.label = axis;
  for (const ReportRun& run : runs) {
    if (chart.series.size() == kMostCompared) break;
    Series s{.name = run.label, .colour = colour_at(chart.series.size()), .points = {}};
    for (const StepRecord& r : run.records.steps) s.points.push_back({static_cast<double>(r.step), r.*member});
    chart.series.push_back(std::move(s));
  }
  chart.y.log = wants_log(chart.series);
  return figure(chart, caption);
}

// The first value under `key` in `json` or in an object in it.
const Json* find_key(const Json& json, const std::string& key) {
  if (!json.is_object()) return nullptr;
  if (const auto at = json.find(key); at != json.end() && !at->is_null()) return &*at;
  for (const auto& [name, value] : json.items()) {
    // Of several repeats the first.
    const Json& inside = value.is_array() && !value.empty() ? value.front() : value;
    if (inside.is_object())
      if (const Json* found = find_key(inside, key)) return found;
  }
  return nullptr;
}

double find_number(const Json& json, const std::string& key) {
  const Json* at = find_key(json, key);
  return at != nullptr && at->is_number() ? at->get<double>() : kNone;
}

// Numbers of an array and of arrays in it (gaps by request).
void numbers_in(const Json& json, std::vector<double>& out) {
  if (json.is_number()) out.push_back(json.get<double>());
  if (json.is_array())
    for (const Json& item : json) numbers_in(item, out);
}

// A value a request; NaN for one that has none. Empty when the array was not kept.
std::vector<double> by_request(const Json& details, const char* key) {
  std::vector<double> values;
  if (const Json* at = find_key(details, key); at != nullptr && at->is_array())
    for (const Json& v : *at) values.push_back(v.is_number() ? v.get<double>() : kNone);
  return values;
}

// Milliseconds of all requests where single values were kept (seconds, from the actual send time, as vllm bench serve
// saves them); from the intended one where that is known too.
struct Kept {
  std::vector<double> ttft, itl, tpot, e2e;
};
Kept kept_values(const Json& details) {
  Kept kept;
  const std::vector<double> ttfts = by_request(details, "ttfts"), latencies = by_request(details, "latencies"),
                            starts = by_request(details, "start_times"), dues = by_request(details, "due_times"),
                            lengths = by_request(details, "output_lens");
  if (const Json* itls = find_key(details, "itls")) numbers_in(*itls, kept.itl);
  const auto late = [&](size_t i) { return i < starts.size() && i < dues.size() ? starts[i] - dues[i] : 0; };
  for (size_t i = 0; i < ttfts.size(); ++i) {
    if (!std::isfinite(ttfts[i])) continue;
    kept.ttft.push_back(ttfts[i] + late(i));
    if (i >= latencies.size() || !std::isfinite(latencies[i])) continue;
    kept.e2e.push_back(latencies[i] + late(i));
    if (i < lengths.size() && lengths[i] > 1) kept.tpot.push_back((latencies[i] - ttfts[i]) / (lengths[i] - 1));
  }
  for (auto* values : {&kept.ttft, &kept.itl, &kept.tpot, &kept.e2e})
    for (double& v : *values) v *= 1e3;
  return kept;
}

struct Latency {
  const char *name, *due_name, *title, *caption;  // due_name: of the one from the intended send time
  std::vector<double> Kept::*kept;
};
constexpr Latency kLatencies[] = {
    {"ttft", "ttft_from_due", "Time to first token", "From the intended send time. A long tail is a queue.",
     &Kept::ttft},
    {"itl", "itl", "Inter-token latency",
     "Gaps between pieces of a stream. Steps in the tail are prefills that hold decodes up.", &Kept::itl},
    {"tpot", "tpot", "Time per output token", "A request's mean gap.", &Kept::tpot},
    {"e2el", "e2el_from_due", "End to end", "From the intended send time to the last byte.", &Kept::e2e},
};

double percentile_ms(const Json& details, const Latency& l, const std::string& p) {
  for (const char* name : {l.due_name, l.name}) {
    if (const double v = find_number(details, fmt::format("{}_{}_ms", p, name)); std::isfinite(v)) return v;
    if (p != "p50") continue;
    if (const double v = find_number(details, fmt::format("median_{}_ms", name)); std::isfinite(v)) return v;
  }
  return kNone;
}

// From all values where they were kept, otherwise through the percentiles.
Series latency_series(const Json& details, const Latency& l, const std::string& label, const std::string& colour,
                      bool& exact) {
  if (const Kept kept = kept_values(details); !(kept.*l.kept).empty()) return cdf_series(label, colour, kept.*l.kept);
  exact = false;
  Series s{.name = label, .colour = colour, .points = {}};
  for (const int p : {1, 5, 10, 25, 50, 75, 90, 95, 99})
    if (const double v = percentile_ms(details, l, fmt::format("p{}", p)); std::isfinite(v))
      s.points.push_back({v, p / 100.0});
  if (const double v = percentile_ms(details, l, "max"); std::isfinite(v)) s.points.push_back({v, 1});
  return s;
}

}  // namespace

std::string compare_section(const std::vector<ReportRun>& runs) {
  HtmlTable numbers{.head = {""}, .rows = {}},
      differences{.head = {"Differs"}, .rows = {}, .text_columns = 1 + runs.size()};
  std::vector<std::map<std::string, std::string>> settings;
  std::vector<std::string> keys;
  std::set<std::string> known;
  for (size_t r = 0; r < runs.size(); ++r) {
    numbers.head.push_back(runs[r].label);
    differences.head.push_back(runs[r].label);
    const std::vector<Headline> headline = headline_of(runs[r].records);
    for (size_t i = 0; i < headline.size(); ++i) {
      if (r == 0) numbers.rows.push_back({headline[i].name});
      numbers.rows[i].push_back(headline[i].value);
    }
    settings.emplace_back();
    for (const auto& [key, value] : flattened(identity_json(runs[r].records))) {
      settings.back()[key] = value;
      if (known.insert(key).second) keys.push_back(key);
    }
  }
  for (const std::string& key : keys) {
    std::vector<std::string> row = {key};
    bool differs = false;
    for (const auto& setting : settings) {
      const auto at = setting.find(key);
      row.push_back(at == setting.end() ? "-" : shortened(at->second, 60));
      differs = differs || (at == setting.end()) != (settings[0].count(key) == 0) ||
                (at != setting.end() && settings[0].count(key) > 0 && at->second != settings[0].at(key));
    }
    if (differs) differences.rows.push_back(std::move(row));
  }
  std::string body =
      html_table(numbers) + "<div class=\"pair\">" +
      overlay(runs, "Loss", "loss, nats a token", &StepRecord::loss,
              "The same batch and seed give the same curve in every layout.") +
      overlay(runs, "Throughput", "tokens/s, all ranks", &StepRecord::tokens_per_s,
              "Level lines; compare where both are warm.") +
      overlay(runs, "Step time", "s a step", &StepRecord::step_s,
              "Spikes of one run alone are its hosts' or its network's.") +
      overlay(runs, "Gradient norm", "gradient norm", &StepRecord::grad_norm,
              "A norm that leaves the others' leaves before the loss does.") +
      "</div>\n<h3>Differences of identity and settings</h3>\n" +
      (differences.rows.empty() ? html_note("None: the runs' records say the same.") : html_table(differences));
  if (runs.size() > kMostCompared)
    body += html_note(fmt::format("Curves are drawn of the first {} of {} runs.", kMostCompared, runs.size()));
  return html_section("compare", "Runs side by side", body);
}

std::string serve_section(const std::vector<BenchRecord>& records) {
  std::vector<Json> details;
  HtmlTable table{.head = {"Record", "Requests", "Failed", "Requests/s", "Output tokens/s", "TTFT p50", "p99",
                           "ITL p50", "p99", "TPOT p50", "p99", "E2E p50", "p99", "Goodput/s", "Attainment"},
                  .rows = {}};
  std::string notes;
  for (const BenchRecord& r : records) {
    const Json parsed = Json::parse(r.details, nullptr, false);
    details.push_back(parsed.is_object() ? parsed : Json::object());
    const Json& d = details.back();
    const auto n = [&](const char* key) { return number_text(find_number(d, key)); };
    const auto first_of = [&](std::initializer_list<const char*> keys) {
      for (const char* key : keys)
        if (const double v = find_number(d, key); std::isfinite(v)) return v;
      return kNone;
    };
    // Those that failed were requests too.
    const double completed = find_number(d, "completed"), failed = find_number(d, "failed");
    std::vector<std::string> row = {r.name, number_text(completed + (std::isfinite(failed) ? failed : 0)), n("failed"),
                                    n("request_throughput"), n("output_throughput")};
    for (const Latency& l : kLatencies)
      for (const char* p : {"p50", "p99"}) {
        const double v = percentile_ms(d, l, p);
        row.push_back(std::isfinite(v) ? seconds_text(v / 1e3) : "-");
      }
    row.push_back(number_text(first_of({"request_goodput", "goodput"})));
    row.push_back(percent_text(first_of({"slo_attainment", "attainment"})));
    table.rows.push_back(std::move(row));
    if (!r.quiet) notes += html_note(fmt::format("{}: the machine was not quiet while this was measured.", r.name));
    if (const Json* v = find_key(d, "void"); v != nullptr && v->is_boolean() && v->get<bool>())
      notes +=
          html_note(fmt::format("{}: the client could not keep up; this run says nothing about the server.", r.name));
  }
  std::string body = html_table(table) + notes + "<div class=\"pair\">\n";
  for (const Latency& l : kLatencies) {
    Chart chart;
    chart.title = l.title;
    chart.description = fmt::format("Share of values at or below each: {}.", l.title);
    chart.x.label = "ms";
    chart.y.label = "share at or below, %";
    chart.y.low = 0, chart.y.high = 100;
    bool exact = true;
    for (size_t r = 0; r < details.size(); ++r) {
      Series s = latency_series(details[r], l, records[r].name, colour_at(r), exact);
      for (Point& p : s.points) p.y *= 100;
      if (!s.points.empty()) chart.series.push_back(std::move(s));
    }
    double low = kNone, high = kNone;
    for (const Series& s : chart.series)
      for (const Point& p : s.points)
        if (p.x > 0)
          low = p.x < low || !std::isfinite(low) ? p.x : low, high = p.x > high || !std::isfinite(high) ? p.x : high;
    chart.x.log = high > 20 * low;
    body += figure(
        chart, std::string(l.caption) + (exact ? "" : " Drawn through the percentiles: single values were not kept."));
  }
  return html_section("serve", "Serving: latency", body + "</div>\n");
}

std::string bench_section(const std::vector<BenchRecord>& records) {
  std::string body;
  for (const BenchRecord& r : records) {
    HtmlTable table{.head = {"Metric", "Unit", "Median", "Least", "Most", "Predicted", "Limit", "Of the limit"},
                    .rows = {},
                    .text_columns = 2};
    BarChart bars;
    bars.title = "Share of what is possible";
    bars.description = "Medians as a share of their limits.";
    bars.axis = "%";
    for (const BenchMetric& m : r.metrics) {
      if (table.rows.size() == kMostMetrics) break;
      const double median = quantile_of(m.samples, 0.5);
      double share = kNone;
      if (m.limit && *m.limit > 0 && median > 0)
        share = m.better == Better::lower ? *m.limit / median : median / *m.limit;
      table.rows.push_back({m.name, m.unit, number_text(median), number_text(quantile_of(m.samples, 0)),
                            number_text(quantile_of(m.samples, 1)), m.predicted ? number_text(*m.predicted) : "-",
                            m.limit ? number_text(*m.limit) : "-", percent_text(share)});
      if (!std::isfinite(share) || bars.rows.size() == kMostBars) continue;
      BarRow row;
      row.label = m.name;
      row.parts.push_back({m.name, "s0", 100 * share});
      row.text = percent_text(share);
      bars.rows.push_back(std::move(row));
    }
    const Json machine = Json::parse(r.machine, nullptr, false);
    body += fmt::format("<h4>{}</h4>\n", escape_html("dbench " + r.bench + ": " + r.name));
    body += fmt::format("<p class=\"sub\">{}</p>\n",
                        escape_html(fmt::format("{}, {} repeats, CPU over wall {:.2f}{}{}", r.time, r.repeats,
                                                r.cpu_share, r.quiet ? "" : ", the machine was not quiet",
                                                machine.is_object() ? ", " + text_at(machine, {"cpu_model"}) : "")));
    body += table.rows.empty() ? html_note("The record holds no metric.") : html_table(table);
    if (r.metrics.size() > kMostMetrics)
      body += html_note(fmt::format("{} more metrics are in the record.", r.metrics.size() - kMostMetrics));
    if (!bars.rows.empty())
      body += html_figure({.title = bars.title,
                           .picture = bars_svg(bars),
                           .legend = "",
                           .caption = "100 % is the hardware's limit, measured in the same run."});
  }
  return html_section("bench", "Benchmarks", body);
}

}  // namespace rw
