// Facts about a training run, from its records. Pure; what a record does not say is left out, so that the rules that
// ask for it stay silent.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "libcore/bench/doctor/finding.h"
#include "libcore/bench/record/run_records.h"

namespace rw {

// A JSON object's leaves under their paths: "cpu.busy", "hosts.0"; false and true are 0 and 1.
struct FlatRecord {
  std::map<std::string, double> numbers;
  std::map<std::string, std::string> words;
  double number(const std::string& path) const;       // NaN
  std::string word(const std::string& path) const;    // ""
  double sum(const std::string& path_prefix) const;   // of the numbers below it; NaN when there are none
  int64_t items(const std::string& list_path) const;  // of an array of numbers or strings
};
FlatRecord flatten(const std::string& json_object);

// The records, taken apart once.
struct RunView {
  const RunRecords& run;
  std::vector<const StepRecord*> settled;
  FlatRecord identity;
  std::vector<FlatRecord> events;     // as run.events
  std::vector<FlatRecord> resources;  // as run.resources
  std::vector<std::string> hosts;     // (ranks); empty when unknown
  double step_s = 0;                  // median of the settled steps; NaN
};
RunView view_run(const RunRecords& run);

using StepValue = std::function<double(const StepRecord&)>;
std::vector<double> values_of(std::span<const StepRecord* const> steps, const StepValue& value);  // finite ones
double median_of(std::span<const StepRecord* const> steps, const StepValue& value);               // NaN of nothing
double share_of_step(const StepRecord& step, double seconds);
std::string steps_text(const RunView& view);  // "metrics.jsonl, steps 41 to 120": the settled ones
// Median of the slopes of all pairs, per index (Theil 1950, Sen 1968): half of the values may be wild. At most
// kSlopePoints of them, evenly taken. NaN of fewer than two.
constexpr size_t kSlopePoints = 200;
double robust_slope(std::span<const double> values);

void collect_data_facts(const RunView& view, Facts& facts);
void collect_communication_facts(const RunView& view, Facts& facts);
void collect_resource_facts(const RunView& view, Facts& facts);
void collect_checkpoint_facts(const RunView& view, Facts& facts);
void collect_parameter_facts(const RunView& view, Facts& facts);
void collect_stability_facts(const RunView& view, Facts& facts);  // spikes, non-finite steps, loss scale
// Of facts that are known already: run.trouble, when something is wrong with what the run learns or with its layout, of
// which a host that is slow is not the cause.
void collect_trouble(Facts& facts);
Facts training_facts(const RunRecords& run);

// What the tokens themselves say: (n) in file order.
struct TokenLook {
  double repeated_share = 0;  // of the windows of 64 tokens, those that were there before
  double order_gain = 0;      // how much a token tells of the next, in nats per token; 0: as good as shuffled
  double entropy = 0;         // of single tokens, nats
};
TokenLook look_at_tokens(std::span<const int32_t> tokens);
// The run's data files, where they still are (at most some millions of tokens of each): facts data.looping, ...
void collect_token_facts(const RunView& view, Facts& facts);

}  // namespace rw
