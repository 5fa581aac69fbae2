#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "libcore/bench/record/statistics.h"
#include "libcore/bench/report/html.h"
#include "libcore/bench/report/sections.h"
#include "libcore/bench/report/svg_chart.h"
#include "libcore/plan/draw/schedule_svg.h"

namespace rw {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr size_t kMostHosts = 8;
constexpr int64_t kMostBoxes = 1200;  // of a drawn pipeline

std::string figure(const Chart& chart, const std::string& caption) {
  return html_figure(
      {.title = chart.title, .picture = chart_svg(chart), .legend = chart_legend(chart), .caption = caption});
}

std::string colour_at(size_t i) { return fmt::format("s{}", i % 8); }

// What the plan holds and what lies outside it; the totals among the keys are no owners.
bool is_owner(const std::string& name) { return name != "planned" && name != "mapped"; }

double value_at(const std::map<std::string, double>& map, const std::string& key) {
  const auto at = map.find(key);
  return at == map.end() ? kNone : at->second;
}

double median_second(const RunRecords& run, TimeCategory c) {
  std::vector<double> values;
  for (const StepRecord* s : settled_steps(run))
    if (std::isfinite(s->second(c))) values.push_back(s->second(c));
  return quantile_of(values, 0.5);
}

int whole_number(const Json& json, std::initializer_list<const char*> path, int otherwise) {
  const std::string text = text_at(json, path);
  const int n = text.empty() ? otherwise : std::atoi(text.c_str());
  return n > 0 ? n : otherwise;
}

// A number at a path of keys in a resource line.
double number_at(const Json& json, std::initializer_list<const char*> path) {
  const Json* at = &json;
  for (const char* key : path) {
    if (!at->is_object() || !at->contains(key)) return kNone;
    at = &(*at)[key];
  }
  return at->is_number() ? at->get<double>() : kNone;
}

// The sum over devices (interfaces but the loopback, disks) of one of their numbers.
double sum_over(const Json& line, const char* devices, const char* key) {
  const auto at = line.find(devices);
  if (at == line.end() || !at->is_object()) return kNone;
  double sum = kNone;
  for (const auto& [name, device] : at->items()) {
    const double v = name == "lo" ? kNone : number_at(device, {key});
    if (std::isfinite(v)) sum = (std::isfinite(sum) ? sum : 0) + v;
  }
  return sum;
}

double most_over(const Json& line, const char* devices, const char* key) {
  const auto at = line.find(devices);
  if (at == line.end() || !at->is_object()) return kNone;
  double v = kNone;
  for (const auto& [name, device] : at->items())
    if (const double own = number_at(device, {key}); std::isfinite(own) && !(own <= v)) v = own;
  return v;
}

struct HostSeries {
  std::vector<Point> cpu, memory, received, sent, written, disk;
};

}  // namespace

std::string pipeline_section(const std::string& id, const RunRecords& run) {
  const Json identity = identity_json(run);
  PipelineShape shape{.stages = whole_number(identity, {"layout", "pp"}, 1),
                      .chunks = whole_number(identity, {"layout", "vpp"}, 1),
                      .micro_batches = whole_number(identity, {"layout", "micro_batches"}, 1)};
  if (shape.stages < 2) return "";
  const std::string schedule = text_at(identity, {"layout", "schedule"});
  bool known = false;
  for (const ScheduleKind kind :
       {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::interleaved, ScheduleKind::zb_h1})
    if (schedule == schedule_name(kind)) shape.kind = kind, known = true;
  const double compute_s = median_second(run, TimeCategory::compute);
  if (!known || !(compute_s > 0))
    return html_section(id, "Pipeline",
                        html_note(known ? "No step was timed: the pipeline cannot be drawn."
                                        : "run.json names no schedule that is known: \"" + schedule + "\"."));
  const double each_s = compute_s / shape.micro_batches;
  const int all = shape.micro_batches;
  // Interleaved schedules deal micro-batches in groups of as many as there are stages.
  while (action_count(shape) > kMostBoxes && shape.micro_batches > 2 * shape.stages)
    shape.micro_batches -= shape.stages;
  EvenStages even{.shape = shape};
  even.forward_s = each_s / 3, even.backward_s = each_s * 2 / 3;
  ScheduleView view = even_schedule(even);
  view.title = text_at(identity, {"layout", "text"}) + ", schedule " + schedule;
  std::string svg = schedule_svg(view);
  if (const size_t at = svg.find("<svg"); at != std::string::npos) svg.erase(0, at);
  std::string caption = fmt::format(
      "The layout's schedule with the measured compute of rank 0, {} a micro-batch, on every stage alike; a forward is "
      "taken as a third of it. Measured: the rank waits {} of a step for its neighbours.",
      seconds_text(each_s), seconds_text(median_second(run, TimeCategory::bubble)));
  if (shape.micro_batches < all) caption += fmt::format(" Drawn are {} of {} micro-batches.", shape.micro_batches, all);
  return html_section(id, "Pipeline",
                      html_figure({.title = "A step of the pipeline",
                                   .picture = "<div class=\"scroll paper\">" + svg + "</div>",
                                   .legend = "",
                                   .caption = caption}));
}

std::string memory_section(const std::string& id, const RunRecords& run) {
  const StepRecord* fullest = nullptr;
  std::map<std::string, std::pair<double, double>> spans;  // least and most over the steps
  const auto held = [](const StepRecord& s) {
    double sum = 0;
    for (const auto& [name, bytes] : s.memory_bytes) sum += is_owner(name) && std::isfinite(bytes) ? bytes : 0;
    return sum;
  };
  for (const StepRecord& s : run.steps) {
    if (s.memory_bytes.empty()) continue;
    if (fullest == nullptr || held(s) > held(*fullest)) fullest = &s;
    for (const auto& [name, bytes] : s.memory_bytes) {
      auto [at, fresh] = spans.try_emplace(name, bytes, bytes);
      at->second = {std::min(at->second.first, bytes), std::max(at->second.second, bytes)};
    }
  }
  if (fullest == nullptr) return html_section(id, "Memory", html_note("No step says what memory it held."));
  const double total = held(*fullest);
  const Unit unit = bytes_unit(total);
  std::vector<std::pair<std::string, double>> owners;
  for (const auto& [name, bytes] : fullest->memory_bytes)
    if (is_owner(name)) owners.emplace_back(name, bytes);
  std::sort(owners.begin(), owners.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  BarChart bars;
  bars.title = fmt::format("Memory of rank 0 by owner, step {}", fullest->step);
  bars.description = "Bytes by what they hold, one bar an owner.";
  bars.axis = unit.name;
  std::map<std::string, std::string> colours;
  for (const auto& [name, bytes] : owners) {
    colours[name] = name == "outside_arena" ? "bubble" : colour_at(colours.size());
    BarRow row;
    row.label = name;
    row.parts.push_back({name, colours[name], bytes / unit.factor});
    row.text = fmt::format("{}, {}", bytes_text(bytes), percent_text(total > 0 ? bytes / total : kNone, 0));
    bars.rows.push_back(std::move(row));
  }
  std::string caption = fmt::format("Planned {} for this rank; outside the plan (libraries, code, messages) {}",
                                    bytes_text(value_at(fullest->memory_bytes, "planned")),
                                    bytes_text(value_at(fullest->memory_bytes, "outside_arena")));
  if (const double mapped = value_at(fullest->memory_bytes, "mapped"); mapped > 0)
    caption += fmt::format("; besides, {} of other ranks are mapped", bytes_text(mapped));
  std::string body =
      html_figure({.title = bars.title, .picture = bars_svg(bars), .legend = "", .caption = caption + "."});
  bool varies = false;
  for (const auto& [name, span] : spans)
    varies = varies || (is_owner(name) && span.second - span.first > 0.01 * std::max(total, 1.0));
  if (varies) {
    std::vector<double> x;
    std::vector<std::vector<double>> rows(owners.size());
    for (const StepRecord& s : run.steps) {
      x.push_back(static_cast<double>(s.step));
      for (size_t o = 0; o < owners.size(); ++o) rows[o].push_back(value_at(s.memory_bytes, owners[o].first));
    }
    const Means means = column_means(x, rows, 200);
    Chart chart;
    chart.title = "Memory of rank 0 over the steps";
    chart.description = "Bytes by owner, one area on the other.";
    chart.x.label = "step";
    chart.y.label = unit.name;
    chart.stacked = true;
    for (size_t o = 0; o < owners.size(); ++o) {
      Series s{.name = owners[o].first, .colour = colours[owners[o].first], .points = {}, .draw = Draw::area};
      for (size_t i = 0; i < means.x.size(); ++i) s.points.push_back({means.x[i], means.rows[o][i] / unit.factor});
      chart.series.push_back(std::move(s));
    }
    body += figure(chart, "What grows all the time and is not in the plan is a leak.");
  }
  return html_section(id, "Memory", "<div class=\"pair\">" + body + "</div>\n");
}

std::string predicted_section(const std::string& id, const RunRecords& run) {
  const Json identity = identity_json(run);
  const auto predicted = identity.find("predicted");
  if (predicted == identity.end() || !predicted->is_object()) return "";
  struct Pair {
    std::string key, name;
    double measured;
    bool is_bytes;
    std::string colour;
  };
  double planned = kNone;
  std::vector<double> steps_s;
  for (const StepRecord* s : settled_steps(run)) {
    if (std::isfinite(s->step_s)) steps_s.push_back(s->step_s);
    if (const double v = value_at(s->memory_bytes, "planned"); std::isfinite(v) && !(v <= planned)) planned = v;
  }
  std::vector<Pair> pairs = {{"step-time-s", "step", quantile_of(steps_s, 0.5), false, "s0"}};
  for (const TimeCategory c : {TimeCategory::compute, TimeCategory::communication, TimeCategory::bubble}) {
    const std::string name = time_category_name(c);
    pairs.push_back({name + "-s", name, median_second(run, c), false, name});
  }
  pairs.push_back({"memory-bytes", "memory, rank 0", planned, true, "s5"});
  HtmlTable table{.head = {"", "Predicted", "Measured", "Measured over predicted"}, .rows = {}};
  BarChart bars;
  bars.title = "Seconds of a step: predicted and measured";
  bars.description = "For each part of a step, the predicted seconds above the measured ones.";
  double longest = 0;
  for (const Pair& p : pairs)
    if (!p.is_bytes)
      longest = std::max({longest, number_at(*predicted, {p.key.c_str()}), std::isfinite(p.measured) ? p.measured : 0});
  const Unit unit = seconds_unit(longest);
  bars.axis = unit.name;
  for (const Pair& p : pairs) {
    const double plan = number_at(*predicted, {p.key.c_str()});
    if (!std::isfinite(plan)) continue;
    const auto text = [&](double v) { return p.is_bytes ? bytes_text(v) : seconds_text(v); };
    table.rows.push_back(
        {p.name, text(plan), text(p.measured),
         plan > 0 && std::isfinite(p.measured) ? fmt::format("{:+.1f} %", 100 * (p.measured / plan - 1)) : "-"});
    if (p.is_bytes) continue;
    for (const bool is_plan : {true, false}) {
      const double v = is_plan ? plan : p.measured;
      BarRow row;
      row.label = p.name + (is_plan ? ", predicted" : ", measured");
      row.parts.push_back({row.label, is_plan ? "bubble" : p.colour, v / unit.factor});
      row.text = seconds_text(v);
      bars.rows.push_back(std::move(row));
    }
  }
  if (table.rows.empty())
    return html_section(id, "Predicted and measured", html_note("The run's prediction names no time or memory."));
  return html_section(
      id, "Predicted and measured",
      "<div class=\"pair\">" +
          html_figure(
              {.title = "Side by side",
               .picture = html_table(table),
               .legend = "",
               .caption = "Medians of the steps after the warm-up, rank 0. dplan calibrate feeds a difference back."}) +
          html_figure({.title = bars.title, .picture = bars_svg(bars), .legend = "", .caption = "Grey: the plan."}) +
          "</div>\n");
}

std::string resources_section(const std::string& id, const RunRecords& run) {
  if (run.resources.empty())
    return html_section(id, "Hosts", html_note("No resources.jsonl: what the hosts did meanwhile is not known."));
  std::map<std::string, HostSeries> hosts;
  // Each host's monotonic clock starts somewhere else, a resumed job's too: a host's time runs from its first record.
  std::map<std::string, double> first;
  double longest = 0, most_rate = 0;
  for (const ResourceRecord& r : run.resources) {
    const Json line = Json::parse(r.line, nullptr, false);
    if (!line.is_object() || !std::isfinite(r.clock_s)) continue;
    const double at = r.clock_s - first.try_emplace(r.host, r.clock_s).first->second;
    longest = std::max(longest, at);
    HostSeries& h = hosts[r.host];
    const double interval = number_at(line, {"interval_s"});
    const auto rate = [&](double bytes) { return interval > 0 ? bytes / interval : kNone; };
    const double total = number_at(line, {"memory_bytes", "total"});
    h.cpu.push_back({at, number_at(line, {"cpu", "busy"})});
    h.memory.push_back({at, (total - number_at(line, {"memory_bytes", "available"})) / total});
    h.received.push_back({at, rate(sum_over(line, "network", "received_bytes"))});
    h.sent.push_back({at, rate(sum_over(line, "network", "sent_bytes"))});
    h.written.push_back({at, rate(sum_over(line, "disks", "written_bytes"))});
    h.disk.push_back({at, most_over(line, "disks", "busy")});
    for (const auto* list : {&h.received, &h.sent, &h.written})
      if (std::isfinite(list->back().y)) most_rate = std::max(most_rate, list->back().y);
  }
  if (hosts.empty()) return html_section(id, "Hosts", html_note("resources.jsonl holds no line that could be read."));
  const Unit time = seconds_unit(longest), bytes = bytes_unit(most_rate);
  struct Drawn {
    const char *title, *caption;
    std::vector<Point> HostSeries::*points;
    bool is_share;
  };
  const Drawn drawn[] = {
      {"CPU busy", "Near 100 % on a CPU run. A host below the others waits; one that is full of other work is slow.",
       &HostSeries::cpu, true},
      {"Memory used", "Of the host. Above 90 % the system begins to take it back.", &HostSeries::memory, true},
      {"Network, sent", "All interfaces but the loopback. Flat at a link's rate: the network is the limit.",
       &HostSeries::sent, false},
      {"Network, received", "All interfaces but the loopback.", &HostSeries::received, false},
      {"Disks, written", "Checkpoints stand out; anything else is another user of the disk.", &HostSeries::written,
       false},
      {"Busiest disk", "Share of the time in which it had something to do.", &HostSeries::disk, true},
  };
  std::string body = "<div class=\"pair\">\n", still;
  for (const Drawn& d : drawn) {
    const bool moves = std::any_of(hosts.begin(), hosts.end(), [&](const auto& host) {
      const std::vector<Point>& points = host.second.*d.points;
      return std::any_of(points.begin(), points.end(), [](const Point& p) { return p.y > 0; });
    });
    if (!moves) {
      still += (still.empty() ? "" : ", ") + std::string(d.title);
      continue;
    }
    Chart chart;
    chart.title = d.title;
    chart.description = fmt::format("{} over time, a line a host.", d.title);
    chart.x.label = fmt::format("{} since the first record", time.name);
    chart.y.label = d.is_share ? "%" : fmt::format("{}/s", bytes.name);
    chart.y.low = 0;
    if (d.is_share) chart.y.high = 105;
    for (const auto& [host, h] : hosts) {
      if (chart.series.size() == kMostHosts) break;
      Series s{.name = host, .colour = colour_at(chart.series.size()), .points = h.*d.points};
      for (Point& p : s.points) p.x /= time.factor, p.y = d.is_share ? 100 * p.y : p.y / bytes.factor;
      chart.series.push_back(std::move(s));
    }
    body += figure(chart, d.caption);
  }
  body += "</div>\n";
  if (!still.empty()) body += html_note("Not drawn, for it was zero or not recorded throughout: " + still + ".");
  if (hosts.size() > kMostHosts)
    body += html_note(fmt::format("Drawn are the first {} of {} hosts.", kMostHosts, hosts.size()));
  return html_section(id, "Hosts", body);
}

}  // namespace rw
