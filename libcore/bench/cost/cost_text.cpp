#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "libcore/base/units.h"
#include "libcore/bench/cost/cost.h"

namespace rw {
namespace {

std::string money(double v, const CostSpec& spec) {
  if (!std::isfinite(v)) return "-";
  return std::abs(v) >= 0.01 ? fmt::format("{:.2f} {}", v, spec.currency) : fmt::format("{:.3g} {}", v, spec.currency);
}

std::string row(const std::string& name, const std::string& value, const std::string& note = "") {
  return fmt::format("  {:<26} {:>16}{}{}\n", name, value, note.empty() ? "" : "   ", note);
}

std::string hour_rows(const HourPrice& h, const CostSpec& spec) {
  std::string out = "A device-hour\n";
  if (h.rent > 0) out += row("rent", money(h.rent, spec));
  if (h.power > 0) out += row("power", money(h.power, spec), fmt::format("{:g} W", spec.power_w));
  if (h.depreciation > 0)
    out += row("depreciation", money(h.depreciation, spec),
               fmt::format("{:g} over {:g} years, in use {:g} % of them", spec.device_price, spec.life_years,
                           100 * spec.utilisation));
  if (h.repair > 0)
    out += row("repair", money(h.repair, spec), fmt::format("{:g} hours a year", spec.repair_hours_per_device_year));
  return out + row("together", money(h.total(), spec));
}

std::string left_out_text(const std::vector<std::string>& left_out) {
  std::string out = "Not included\n";
  for (const std::string& what : left_out) out += "  " + what + "\n";
  return out;
}

std::string share(double v) { return std::isfinite(v) ? fmt::format("{:.1f} %", 100 * v) : "-"; }

void add(BenchRecord& record, const char* name, const std::string& unit, double value, Better better = Better::lower) {
  if (!std::isfinite(value)) return;
  BenchMetric m;
  m.name = name;
  m.unit = unit;
  m.better = better;
  m.kind = MetricKind::fact;
  m.samples = {value};
  record.metrics.push_back(std::move(m));
}

BenchRecord new_cost_record(const CostSpec& spec, const std::string& name) {
  CostSpec copy = spec;
  return new_record("cost", name, fields_json(fields(copy)));
}

Json number(double v) { return std::isfinite(v) ? Json(v) : Json(nullptr); }

Json hour_json(const HourPrice& h) {
  return {{"rent", h.rent},
          {"power", h.power},
          {"depreciation", h.depreciation},
          {"repair", h.repair},
          {"total", h.total()}};
}

}  // namespace

std::string cost_text(const TrainingCost& c, const CostSpec& spec) {
  const RunTime& t = c.time;
  std::string out = hour_rows(c.hour, spec) + "Time\n";
  const auto part = [&](const char* name, double seconds, const std::string& note = "") {
    if (seconds > 0 || !note.empty())
      out += row(name, seconds < 10 ? fmt::format("{:.3g} s", seconds) : format_seconds(seconds),
                 share(seconds / t.wall_s) + (note.empty() ? "" : "   " + note));
  };
  part("productive", t.productive_s, fmt::format("{} steps", t.steps - t.skipped_steps));
  part("waiting for data", t.data_s);
  part("checkpoint stalls", t.checkpoint_s);
  part("validation", t.validation_s);
  if (t.skipped_steps > 0) part("skipped", t.skipped_s, fmt::format("{} steps", t.skipped_steps));
  if (t.lost_steps > 0)
    part("computed again", t.lost_s, fmt::format("{} steps, estimated from the usual step", t.lost_steps));
  if (t.attempts > 1) part("between attempts", t.down_s, fmt::format("{} attempts", t.attempts));
  part("starting, ending, other", t.other_s);
  out += row("wall", format_seconds(t.wall_s),
             fmt::format("{:.4g} hours billed of {} devices{}", c.billed_hours, c.devices,
                         c.waiting_hours > 0 ? fmt::format(", {:.4g} of them waiting", c.waiting_hours) : ""));
  out += row("effective utilisation", share(t.effective()), "productive over wall");
  out +=
      "Cost\n" + row("so far", money(c.total, spec), fmt::format("step {}, {} tokens", c.step, format_count(c.tokens)));
  out += row("per million tokens", money(c.per_million_tokens, spec));
  out += row("per sample", money(c.per_sample, spec));
  if (c.planned_steps > 0) {
    out += row("to finish", money(c.to_finish, spec),
               fmt::format("{} steps to go: {:.3g} hours at the pace so far",
                           std::max<int64_t>(0, c.planned_steps - c.step), c.hours_to_finish));
    out += row("whole", money(c.whole, spec), fmt::format("{} steps", c.planned_steps));
  }
  for (const std::string& note : c.notes) out += "  note: " + note + "\n";
  return out + left_out_text(c.left_out);
}

std::string cost_text(const ServingCost& c, const CostSpec& spec) {
  const ServedLoad& l = c.load;
  std::string out = hour_rows(c.hour, spec) + "Served\n";
  out += row("time", format_seconds(l.duration_s),
             fmt::format("{:.4g} hours billed of {} devices", c.billed_hours, c.devices));
  out += row("requests", std::to_string(l.requests), fmt::format("{} failed", l.failed));
  out += row("tokens", format_count(l.input_tokens + l.output_tokens),
             fmt::format("{} in, {} out", format_count(l.input_tokens), format_count(l.output_tokens)));
  out += row("SLO attainment", share(l.attainment)) + row("retry rate", share(l.retry_rate));
  out += row("reject rate", share(l.reject_rate));
  out += row("queued", share(l.queued_share),
             std::isfinite(l.queue_p99_ms)
                 ? fmt::format("queue p50 {:.3g} ms, p99 {:.3g} ms", l.queue_p50_ms, l.queue_p99_ms)
                 : "");
  out += "Cost\n" + row("together", money(c.total, spec));
  out += row("per million output tokens", money(c.per_million_output, spec));
  out += row("per million tokens", money(c.per_million_total, spec));
  for (const std::string& note : l.notes) out += "  note: " + note + "\n";
  return out + left_out_text(c.left_out);
}

BenchRecord cost_record(const TrainingCost& c, const CostSpec& spec, const std::string& name) {
  BenchRecord record = new_cost_record(spec, name);
  const std::string per = spec.currency;
  add(record, "cost_per_million_tokens", per, c.per_million_tokens);
  add(record, "cost_per_sample", per, c.per_sample);
  add(record, "cost", per, c.total, Better::neither);
  add(record, "cost_to_finish", per, c.to_finish, Better::neither);
  add(record, "cost_whole", per, c.whole, Better::neither);
  add(record, "effective_utilisation", "", c.time.effective(), Better::higher);
  add(record, "device_hours", "h", c.billed_hours, Better::neither);
  const RunTime& t = c.time;
  record.details = Json{
      {"devices", c.devices},
      {"hour_price", hour_json(c.hour)},
      {"tokens", number(c.tokens)},
      {"samples", number(c.samples)},
      {"step", c.step},
      {"planned_steps", c.planned_steps},
      {"hours_to_finish", number(c.hours_to_finish)},
      {"wall_s", t.wall_s},
      {"attempts", t.attempts},
      {"rewinds", t.rewinds},
      {"lost_steps", t.lost_steps},
      {"skipped_steps", t.skipped_steps},
      {"seconds",
       {{"productive", t.productive_s},
        {"data", t.data_s},
        {"checkpoint", t.checkpoint_s},
        {"validation", t.validation_s},
        {"skipped", t.skipped_s},
        {"lost", t.lost_s},
        {"down", t.down_s},
        {"other", t.other_s}}},
      {"notes", c.notes},
      {"left_out",
       c.left_out}}.dump();
  return record;
}

BenchRecord cost_record(const ServingCost& c, const CostSpec& spec, const std::string& name) {
  BenchRecord record = new_cost_record(spec, name);
  add(record, "cost_per_million_output_tokens", spec.currency, c.per_million_output);
  add(record, "cost_per_million_tokens", spec.currency, c.per_million_total);
  add(record, "cost", spec.currency, c.total, Better::neither);
  add(record, "slo_attainment", "", c.load.attainment, Better::higher);
  add(record, "retry_rate", "", c.load.retry_rate);
  add(record, "reject_rate", "", c.load.reject_rate);
  add(record, "queued_share", "", c.load.queued_share);
  add(record, "device_hours", "h", c.billed_hours, Better::neither);
  const ServedLoad& l = c.load;
  record.details = Json{
      {"devices", c.devices},
      {"hour_price", hour_json(c.hour)},
      {"duration_s", l.duration_s},
      {"input_tokens", l.input_tokens},
      {"output_tokens", l.output_tokens},
      {"requests", l.requests},
      {"failed", l.failed},
      {"queue_p50_ms", number(l.queue_p50_ms)},
      {"queue_p99_ms", number(l.queue_p99_ms)},
      {"notes", l.notes},
      {"left_out",
       c.left_out}}.dump();
  return record;
}

}  // namespace rw
