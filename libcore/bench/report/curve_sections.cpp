#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "libcore/bench/record/statistics.h"
#include "libcore/bench/report/html.h"
#include "libcore/bench/report/sections.h"
#include "libcore/bench/report/svg_chart.h"

namespace rw {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kAreaColumns = 200;

Series by_step(const RunRecords& run, std::string name, std::string colour, double StepRecord::*member,
               double factor = 1) {
  Series s{.name = std::move(name), .colour = std::move(colour), .points = {}};
  for (const StepRecord& r : run.steps) s.points.push_back({static_cast<double>(r.step), r.*member / factor});
  return s;
}

double most(const RunRecords& run, double StepRecord::*member) {
  double v = 0;
  for (const StepRecord& r : run.steps)
    if (std::isfinite(r.*member)) v = std::max(v, r.*member);
  return v;
}

struct MarkStyle {
  const char *name, *colour;
  bool tall;
};
const std::map<std::string, MarkStyle>& mark_styles() {
  static const std::map<std::string, MarkStyle> styles = {
      {"checkpoint", {"checkpoint", "checkpoint", false}},
      {"skip", {"skipped step", "bad", false}},
      {"spike", {"spike", "warn", true}},
      {"rewind", {"rewind", "bad", true}},
      {"resume", {"resume", "good", true}},
      {"failed", {"failure", "bad", true}},
      {"failure", {"failure", "bad", true}},
      {"interrupted", {"interrupted", "ink", true}},
      {"straggler", {"straggler", "communication", false}},
      {"checkpoint_failed", {"checkpoint failed", "bad", false}},
  };
  return styles;
}

std::vector<ChartMark> marks_of(const RunRecords& run) {
  std::vector<ChartMark> marks;
  for (const EventRecord& e : run.events) {
    const auto style = mark_styles().find(e.event);
    if (style == mark_styles().end() || e.step < 0) continue;
    const MarkStyle& s = style->second;
    marks.push_back({static_cast<double>(e.step), s.name, s.colour, s.tall,
                     fmt::format("{} at step {}, {}", s.name, e.step, e.time)});
  }
  return marks;
}

Series validation_series(const RunRecords& run) {
  Series s{.name = "validation loss", .colour = "s1", .points = {}, .draw = Draw::dots};
  for (const EventRecord& e : run.events) {
    if (e.event != "validation" || e.step < 0) continue;
    const Json line = Json::parse(e.line, nullptr, false);
    const auto at = line.is_object() ? line.find("val_loss") : line.end();
    if (line.is_object() && at != line.end() && at->is_number())
      s.points.push_back({static_cast<double>(e.step), at->get<double>()});
  }
  return s;
}

std::string figure(const Chart& chart, const std::string& caption) {
  return html_figure(
      {.title = chart.title, .picture = chart_svg(chart), .legend = chart_legend(chart), .caption = caption});
}

std::string breakdown_figure(const RunRecords& run) {
  std::vector<double> x;
  std::vector<std::vector<double>> rows(static_cast<size_t>(TimeCategory::n_categories));
  double longest = 0;
  for (const StepRecord& s : run.steps) {
    x.push_back(static_cast<double>(s.step));
    double sum = 0;
    for (size_t c = 0; c < rows.size(); ++c) {
      rows[c].push_back(s.seconds[c]);
      sum += std::isfinite(s.seconds[c]) ? s.seconds[c] : 0;
    }
    longest = std::max(longest, sum);
  }
  const Means means = column_means(x, rows, kAreaColumns);
  const Unit unit = seconds_unit(longest);
  Chart chart;
  chart.title = "Where a step's time goes";
  chart.description = "Seconds of a step by category, one area on the other, over the steps.";
  chart.x.label = "step";
  chart.y.label = fmt::format("{} a step, rank 0", unit.name);
  chart.stacked = true;
  for (size_t c = 0; c < rows.size(); ++c) {
    const char* name = time_category_name(static_cast<TimeCategory>(c));
    Series s{.name = name, .colour = name, .points = {}, .draw = Draw::area};
    for (size_t i = 0; i < means.x.size(); ++i) s.points.push_back({means.x[i], means.rows[c][i] / unit.factor});
    chart.series.push_back(std::move(s));
  }
  std::string caption =
      "Compute should fill most of it. Communication and bubble that grow are a slow rank, link or layout; data is the "
      "loader; checkpoint is the stall after a step.";
  if (means.per_column > 1)
    caption +=
        fmt::format(" Each point is the mean of {} steps; single spikes are in the step time.", means.per_column);
  return figure(chart, caption);
}

struct Communication {
  std::string figure, table;
};
Communication communication_of(const RunRecords& run) {
  const std::vector<const StepRecord*> steps = settled_steps(run);
  std::map<std::string, double> bytes, calls;
  std::vector<double> shares;
  for (const StepRecord* s : steps) {
    for (const auto& [name, n] : s->bytes) bytes[name] += n;
    for (const auto& [name, n] : s->calls) calls[name] += n;
    // As the doctor counts it, so that both say one number.
    if (const double c = s->second(TimeCategory::communication); std::isfinite(c) && s->step_s > 0)
      shares.push_back(c / s->step_s);
  }
  if (bytes.empty() && calls.empty())
    return {.figure = "", .table = html_note("No collective is recorded: one rank, or groups of one rank each.")};
  Chart chart;
  chart.title = "Communication: exposed and in all";
  chart.description = "Seconds a step of the operations, summed, and those in which the rank waited for them.";
  chart.x.label = "step";
  const Unit unit = seconds_unit(std::max(most(run, &StepRecord::communication_s), most(run, &StepRecord::exposed_s)));
  chart.y.label = fmt::format("{} a step, rank 0", unit.name);
  chart.series.push_back(by_step(run, "all operations, summed", "bubble", &StepRecord::communication_s, unit.factor));
  chart.series.push_back(by_step(run, "exposed: the rank waits", "communication", &StepRecord::exposed_s, unit.factor));
  HtmlTable table{.head = {"Group and operation", "Calls a step", "Bytes a step", "Share"}, .rows = {}};
  double sum = 0;
  const auto n = static_cast<double>(steps.size());
  for (const auto& [name, v] : bytes) sum += v;
  for (const auto& [name, v] : bytes)
    table.rows.push_back(
        {name, number_text(calls[name] / n), bytes_text(v / n), percent_text(sum > 0 ? v / sum : kNone)});
  return {.figure = figure(chart, fmt::format("Communication takes {} of a usual step (median); from 30 % on another "
                                              "layout is worth a try. Operations that overlap count each.",
                                              percent_text(quantile_of(shares, 0.5)))),
          .table = "<h4>Communication of rank 0, mean of the steps after the warm-up</h4>\n" + html_table(table)};
}

}  // namespace

std::string curves_section(const std::string& id, const RunRecords& run) {
  if (run.steps.empty()) return html_section(id, "Learning", html_note("No step is recorded."));
  Chart loss;
  loss.title = "Loss";
  loss.description = "Training loss over the steps, with validation and what happened.";
  loss.x.label = "step";
  loss.y.label = "loss, nats a token";
  loss.series.push_back(by_step(run, "training loss", "s0", &StepRecord::loss));
  if (Series validation = validation_series(run); !validation.points.empty())
    loss.series.push_back(std::move(validation));
  loss.marks = marks_of(run);
  loss.y.log = wants_log(loss.series);
  Chart lr;
  lr.title = "Learning rate";
  lr.description = "Learning rate over the steps.";
  lr.x.label = "step";
  lr.y.label = "learning rate";
  lr.series.push_back(by_step(run, "learning rate", "s0", &StepRecord::lr));
  Chart norm;
  norm.title = "Gradient norm";
  norm.description = "Norm of the gradient before clipping, over the steps.";
  norm.x.label = "step";
  norm.y.label = "gradient norm";
  norm.series.push_back(by_step(run, "gradient norm", "s3", &StepRecord::grad_norm));
  norm.y.log = wants_log(norm.series);
  for (const ChartMark& m : loss.marks)
    if (m.tall) norm.marks.push_back(m);
  std::string body = "<div class=\"pair\">" +
                     figure(loss,
                            "Falls fast, then slowly. A validation loss that rises while the training loss falls is "
                            "overfitting; a jump that does not come back is a fault of data or rate.");
  body += figure(norm, "Steady after the warm-up. A rise before the loss rises is an early sign of a spike.") +
          figure(lr, "Warm-up, then decay: the loss follows it.");
  bool scaled = false;
  for (const StepRecord& s : run.steps) scaled = scaled || std::isfinite(s.loss_scale);
  if (scaled) {
    Chart scale;
    scale.title = "Loss scale";
    scale.description = "Dynamic loss scale of f16 training, over the steps.";
    scale.x.label = "step";
    scale.y.label = "loss scale";
    scale.y.log = true;
    scale.series.push_back(by_step(run, "loss scale", "s2", &StepRecord::loss_scale));
    body += figure(scale, "Halves at an overflow, doubles after a quiet while. One that only falls is a collapse.");
  }
  return html_section(id, "Learning", body + "</div>\n");
}

std::string time_section(const std::string& id, const RunRecords& run) {
  if (run.steps.empty()) return html_section(id, "Speed", html_note("No step is recorded."));
  Chart tokens;
  tokens.title = "Throughput";
  tokens.description = "Tokens a second over the steps.";
  tokens.x.label = "step";
  tokens.y.label = "tokens/s, all ranks";
  tokens.y.low = 0;
  tokens.series.push_back(by_step(run, "tokens/s", "s0", &StepRecord::tokens_per_s));
  Chart step;
  step.title = "Step time";
  step.description = "Seconds of a step over the steps.";
  step.x.label = "step";
  const Unit unit = seconds_unit(most(run, &StepRecord::step_s));
  step.y.label = fmt::format("{} a step", unit.name);
  step.series.push_back(by_step(run, "step", "s0", &StepRecord::step_s, unit.factor));
  step.y.log = wants_log(step.series);
  if (!step.y.log) step.y.low = 0;
  for (const ChartMark& m : marks_of(run)) step.marks.push_back(m);
  std::vector<double> seconds;
  for (const StepRecord* s : settled_steps(run))
    if (std::isfinite(s->step_s)) seconds.push_back(s->step_s);
  const std::string spread =
      fmt::format("After the warm-up: median {}, p95 {}, longest {}.", seconds_text(quantile_of(seconds, 0.5)),
                  seconds_text(quantile_of(seconds, 0.95)), seconds_text(quantile_of(seconds, 1)));
  std::string body =
      "<div class=\"pair\">" +
      figure(tokens, "Level after the first steps. A step down that stays is a throttled or shared host.") +
      figure(step, spread + " Regular spikes are checkpoints or evaluation; others are the hosts or the network.") +
      breakdown_figure(run);
  const Communication c = communication_of(run);
  return html_section(id, "Speed", body + c.figure + "</div>\n" + c.table);
}

}  // namespace rw
