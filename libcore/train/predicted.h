// A plan's prediction beside what the run measures, by category. The trainer knows no planner: it compares what the
// configuration's [predicted] table says with the same names of its own.
#pragma once
#include <string>
#include <vector>

#include "libcore/base/json.h"
#include "libcore/spec/model_spec.h"
#include "libcore/telemetry/categories.h"

namespace rw {

// Keys of [predicted]: step-time-s; compute-s, communication-s, bubble-s (telemetry's categories); memory-bytes, the
// worst rank's. Others are carried, not compared.
class PredictedStep {
 public:
  // `table`: JSON text of the table; "" compares nothing.
  explicit PredictedStep(const std::string& table);
  bool empty() const { return entries_.empty() && memory_ < 0; }
  // A step on this rank. The first is left out of the comparison when there are others: it warms up.
  void add(const StepClock& clock);
  // {"step_time_s": {"predicted": 0.18, "measured": 0.19, "ratio": 1.05}, ...} with the medians of the steps;
  // memory_bytes is the run's, of the worst rank.
  Json beside(double memory_bytes) const;
  static std::string text(const Json& beside);  // "step 0.18 s predicted, 0.19 s measured (+5 %); ..."

 private:
  struct Entry {
    std::string key;
    double predicted;
    std::vector<double> measured;  // seconds, by step
  };
  Entry* entry(const std::string& key);
  std::vector<Entry> entries_;
  double memory_ = -1;
};

// Why a [plan] table (JSON text; "": none) was made for another run: its ranks or its model's identity; "" when it was
// not, or does not say.
std::string plan_mismatch(const std::string& table, const ModelSpec& model, int64_t ranks);

}  // namespace rw
