#include "libcore/bench/cost/cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"

namespace rw {
namespace {

constexpr double kYear2000 = 946684800, kYear2200 = 7258118400;  // seconds of UTC
constexpr double kMostMoney = 1e12;
constexpr double kHoursPerYear = 8760, kNone = std::numeric_limits<double>::quiet_NaN();

double over(double a, double b) { return b > 0 ? a / b : kNone; }

std::vector<std::string> left_out_of(const CostSpec& spec) {
  std::vector<std::string> out;
  if (spec.price <= 0) out.push_back("rent (--price)");
  if (spec.power_w <= 0) out.push_back("power (--power-w, --electricity)");
  if (spec.device_price <= 0) out.push_back("depreciation (--device-price, --life-years)");
  if (spec.repair_hours_per_device_year <= 0) out.push_back("repair (--repair-hours-per-device-year)");
  if (spec.waiting_hours <= 0) out.push_back("waiting (--waiting-hours)");
  return out;
}

}  // namespace

FieldList fields(CostSpec& spec) {
  return {
      {.name = "price", .value = &spec.price, .help = "of a device-hour, in --currency", .min = 0, .max = kMostMoney},
      {.name = "power-w",
       .value = &spec.power_w,
       .help = "watts that a device draws, its share of host and cooling included",
       .min = 0,
       .max = 1e9},
      {.name = "electricity", .value = &spec.electricity, .help = "price of a kWh", .min = 0, .max = kMostMoney},
      {.name = "device-price",
       .value = &spec.device_price,
       .help = "what a device cost, for its depreciation",
       .min = 0,
       .max = kMostMoney},
      {.name = "life-years", .value = &spec.life_years, .help = "over which it is written off", .min = 0, .max = 1000},
      {.name = "utilisation",
       .value = &spec.utilisation,
       .help = "share of its life in which a device is in use: the rest is spread over the hours used",
       .min = 0.01,
       .max = 1},
      {.name = "repair-hours-per-device-year",
       .value = &spec.repair_hours_per_device_year,
       .help = "in which a device is paid and cannot be used",
       .min = 0,
       .max = kHoursPerYear - 1},
      {.name = "waiting-hours",
       .value = &spec.waiting_hours,
       .help = "in which all devices were held before the run began",
       .min = 0,
       .max = 1e6},
      {.name = "devices",
       .value = &spec.devices,
       .help = "0: the ranks that the run's records name (serving: 1)",
       .min = 0,
       .max = 1e9},
      {.name = "bill-gaps", .value = &spec.bill_gaps, .help = "devices are paid between attempts too"},
      {.name = "currency", .value = &spec.currency, .help = "a name to print"},
  };
}

void check_cost(const CostSpec& spec) {
  if ((spec.power_w > 0) != (spec.electricity > 0))
    fail(ErrorKind::usage, "--power-w and --electricity go together: found {} W and {} {} per kWh", spec.power_w,
         spec.electricity, spec.currency);
  if ((spec.device_price > 0) != (spec.life_years > 0))
    fail(ErrorKind::usage, "--device-price and --life-years go together: found {} {} and {} years", spec.device_price,
         spec.currency, spec.life_years);
  if (spec.price <= 0 && spec.power_w <= 0 && spec.device_price <= 0)
    fail(ErrorKind::usage,
         "nothing to compute a cost from: expected --price, --power-w with --electricity, or --device-price with "
         "--life-years");
}

HourPrice hour_price(const CostSpec& spec) {
  HourPrice h{.rent = spec.price, .power = spec.power_w / 1000 * spec.electricity};
  if (spec.device_price > 0) h.depreciation = spec.device_price / (spec.life_years * kHoursPerYear * spec.utilisation);
  const double down = spec.repair_hours_per_device_year;
  h.repair = (h.rent + h.power + h.depreciation) * (kHoursPerYear / (kHoursPerYear - down) - 1);
  return h;
}

TrainingCost training_cost(const RunRecords& run, const CostSpec& spec) {
  if (run.steps.empty())
    fail(ErrorKind::input, "{}: no step is recorded in metrics.jsonl: nothing was trained", run.dir.string());
  const std::string where = (run.dir / "run.json").string();
  // A clock that was wrong would make a cost of centuries.
  for (const EventRecord& e : run.events)
    if (const double at = utc_seconds(e.time); std::isfinite(at) && (at < kYear2000 || at > kYear2200))
      fail(ErrorKind::input, "{}: events.jsonl, \"{}\": expected a time from 2000 to 2200, found {}", run.dir.string(),
           e.event, e.time);
  const Json identity = run.identity.empty() ? Json::object() : parse_json(run.identity, where);
  TrainingCost c;
  c.left_out = left_out_of(spec);
  c.devices = spec.devices;
  if (c.devices == 0 && identity.contains("hosts") && identity["hosts"].is_array())
    c.devices = static_cast<int64_t>(identity["hosts"].size());
  if (c.devices == 0) fail(ErrorKind::input, "{}: expected \"hosts\", one a rank, found none; say --devices", where);
  c.hour = hour_price(spec);
  c.time = run_time(run);
  c.waiting_hours = static_cast<double>(c.devices) * spec.waiting_hours;
  const double held_s = c.time.wall_s - (spec.bill_gaps ? 0 : c.time.down_s);
  const double run_hours = static_cast<double>(c.devices) * held_s / 3600;
  c.billed_hours = run_hours + c.waiting_hours;
  c.total = c.billed_hours * c.hour.total();
  const StepRecord& last = run.steps.back();
  c.tokens = last.tokens, c.samples = last.samples, c.step = last.step;
  // A run that goes on from another one's checkpoint counts that one's tokens too: they are not in this time.
  const StepRecord& first = run.steps.front();
  if (first.step > 1 && std::isfinite(first.tokens) && std::isfinite(last.tokens)) {
    const auto n = static_cast<double>(last.step - first.step);
    const double tokens_a_step = n > 0 ? (last.tokens - first.tokens) / n : kNone;
    const double samples_a_step = n > 0 ? (last.samples - first.samples) / n : kNone;
    c.tokens = tokens_a_step * (n + 1), c.samples = samples_a_step * (n + 1);
    c.left_out.push_back(fmt::format("what led to step {}: it is in another run's records", first.step - 1));
  }
  c.per_million_tokens = over(c.total, c.tokens / 1e6);
  c.per_sample = over(c.total, c.samples);
  c.hours_to_finish = c.to_finish = c.whole = kNone;
  if (const auto config = identity.find("config"); config != identity.end() && config->is_object())
    c.planned_steps = json_int(*config, "steps", where, 0);
  if (c.planned_steps > 0) {
    const auto done = static_cast<double>(c.step - first.step + 1);
    const auto to_go = static_cast<double>(std::max<int64_t>(0, c.planned_steps - c.step));
    c.hours_to_finish = held_s / 3600 / done * to_go;
    c.to_finish = run_hours / done * to_go * c.hour.total();
    c.whole = c.total + c.to_finish;
  }
  if (!c.time.from_events) c.left_out.push_back("everything between the steps: no event tells when the run began");
  if (!spec.bill_gaps && c.time.down_s > 0)
    c.left_out.push_back(fmt::format("{:.3g} hours between attempts (--no-bill-gaps)", c.time.down_s / 3600));
  c.left_out.push_back("start-up before the first record, storage, network, people");
  c.notes = run.notes;
  return c;
}

ServingCost serving_cost(const ServedLoad& load, const CostSpec& spec) {
  ServingCost c;
  c.load = load;
  c.devices = spec.devices > 0 ? spec.devices : 1;
  c.hour = hour_price(spec);
  c.billed_hours = static_cast<double>(c.devices) * (load.duration_s / 3600 + spec.waiting_hours);
  c.total = c.billed_hours * c.hour.total();
  c.per_million_output = over(c.total, load.output_tokens / 1e6);
  c.per_million_total = over(c.total, (load.output_tokens + load.input_tokens) / 1e6);
  c.left_out = left_out_of(spec);
  if (spec.devices == 0) c.left_out.push_back("further devices: one is assumed (--devices)");
  c.left_out.push_back("hours in which nothing is asked of the server, storage, network, people");
  return c;
}

}  // namespace rw
