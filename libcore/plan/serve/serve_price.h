// Seconds of a serving step on a device type: the ops of the real forward, by roofline, and the tensor-parallel
// collectives. Kept by what they depend on (rows; logits asked for), so that a simulation's step costs a look-up.
#pragma once
#include <cstdint>
#include <memory>

#include "libcore/plan/price/op_price.h"
#include "libcore/plan/serve/serve_links.h"
#include "libcore/serve/model_runner.h"
#include "libcore/serve/step_plan.h"

namespace rw {

// What of a step its price depends on. pairs: (query, key) pairs that may attend; context: keys read, each once for all
// queries of a sequence (cost of PagedAttention in kernels/ops.h).
struct PricedStep {
  int64_t rows = 0, logits = 0;
  double pairs = 0, context = 0;
  // New tokens [first, first + n) of a sequence.
  void add(int64_t first, int64_t n, bool sample);
};
PricedStep step_shape(const StepPlan& plan);

struct StepParts {
  double products = 0, attention = 0, other = 0;  // ops: of weights, over the cache, all else (with the sampler)
  double comm = 0, overhead = 0;
  double total() const { return products + attention + other + comm + overhead; }
};

struct StepPriceQuery {
  const RunnerSpec& runner;
  int64_t tp = 1;
  const DeviceType& device;
  CollectiveSeconds collective;  // not called with tp 1
  double overhead_s = 0;         // of a step, beside the device's work: scheduling, sampling's end, messages
};

class StepPrice {
 public:
  explicit StepPrice(const StepPriceQuery& query);
  ~StepPrice();
  StepPrice(StepPrice&&) noexcept;
  StepParts parts(const PricedStep& shape);
  double seconds(const PricedStep& shape) { return parts(shape).total(); }

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Of one op in serving. Products of few rows are bound by reading the weights only if all units take part: kernels then
// cut the inner size too (split-k), so that no unit is left idle, at half the rate of large tiles (of a quarter of the
// area: half the arithmetic per byte, the ratio of area to edge), on rows padded to the 16 of a tensor instruction.
double serving_op_seconds(const OpCall& call, const DeviceType& device, DType t);

}  // namespace rw
