// What a run or a served load costs: prices times time, over tokens. Every input is optional; what is not given is not
// in the result, and the result says so.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "libcore/base/fields.h"
#include "libcore/base/json.h"
#include "libcore/bench/cost/run_time.h"
#include "libcore/bench/record/bench_record.h"

namespace rw {

struct CostSpec {
  double price = 0;                                          // per device-hour
  double power_w = 0, electricity = 0;                       // of a device; per kWh
  double device_price = 0, life_years = 0, utilisation = 1;  // depreciation
  double repair_hours_per_device_year = 0, waiting_hours = 0;
  int64_t devices = 0;    // 0: the ranks of the run
  bool bill_gaps = true;  // time between attempts
  std::string currency = "USD";
};
FieldList fields(CostSpec& spec);
// Error{usage}: half a pair (power without a price of electricity, a device's price without its life), nothing to
// compute with.
void check_cost(const CostSpec& spec);

// A device-hour:
//   price + power_w / 1000 * electricity + device_price / (life_years * 8760 * utilisation)
// and, since a device that is under repair H of a year's 8760 hours is paid for all of them, times 8760 / (8760 - H).
struct HourPrice {
  double rent = 0, power = 0, depreciation = 0, repair = 0;  // repair: what the factor adds
  double total() const { return rent + power + depreciation + repair; }
};
HourPrice hour_price(const CostSpec& spec);

struct TrainingCost {
  int64_t devices = 0;
  HourPrice hour;
  RunTime time;
  double billed_hours = 0;  // of all devices: the run's, without gaps where they are not billed, and the waiting
  double waiting_hours = 0;
  double total = 0;  // so far
  double tokens = 0, samples = 0;
  double per_million_tokens = 0, per_sample = 0;  // NaN when nothing was trained
  int64_t step = 0, planned_steps = 0;
  double hours_to_finish = 0, to_finish = 0, whole = 0;  // at the pace so far; NaN when the plan is not known
  std::vector<std::string> left_out;
  std::vector<std::string> notes;  // what the records lack
};
// Error{input}: a run without a step.
TrainingCost training_cost(const RunRecords& run, const CostSpec& spec);

// A load that was served, from whatever recorded it.
struct ServedLoad {
  std::string source;
  double duration_s = 0;
  double input_tokens = 0, output_tokens = 0;
  int64_t requests = 0, failed = 0;
  // NaN where the records do not say.
  double attainment = 0, retry_rate = 0, reject_rate = 0, queued_share = 0, queue_p50_ms = 0, queue_p99_ms = 0;
  std::vector<std::string> notes;
};
// Of a record of `dbench serve`: its details. Error{input} for another kind of record, or one without duration and
// tokens.
ServedLoad served_load(const BenchRecord& record);
// Of a directory that `dserve --out` wrote: spans.jsonl for requests, tokens and queueing; the seconds of steps.jsonl
// for the time the engine worked. Error{input}: neither is there.
ServedLoad served_load(const std::filesystem::path& out);

struct ServingCost {
  int64_t devices = 0;
  HourPrice hour;
  ServedLoad load;
  double billed_hours = 0, total = 0;
  double per_million_output = 0, per_million_total = 0;  // NaN without tokens
  std::vector<std::string> left_out;
};
ServingCost serving_cost(const ServedLoad& load, const CostSpec& spec);

std::string cost_text(const TrainingCost& cost, const CostSpec& spec);
std::string cost_text(const ServingCost& cost, const CostSpec& spec);
BenchRecord cost_record(const TrainingCost& cost, const CostSpec& spec, const std::string& name);
BenchRecord cost_record(const ServingCost& cost, const CostSpec& spec, const std::string& name);

}  // namespace rw
