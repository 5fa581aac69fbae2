// A training step's time, memory and price for one layout on one cluster, before it runs.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "libcore/base/json.h"
#include "libcore/plan/memory/rank_memory.h"
#include "libcore/plan/price/step_time.h"
#include "libcore/plan/price/topology.h"
#include "libcore/plan/price/trainer_traits.h"
#include "libcore/plan/price/work_cache.h"
#include "libcore/spec/layout.h"

namespace rw {

struct ByConvention {
  double full = 0, causal = 0, hardware = 0;
};

struct Prediction {
  Layout layout;
  double step_s = 0, tokens_per_s = 0;
  StepSeconds time;
  ByConvention tflops_per_device;  // 1e12 FLOP/s
  ByConvention mfu;                // shares of the peak
  int64_t worst_stage = 0;
  RankMemory memory;                             // of the worst stage
  double device_bytes = 0;                       // what a rank may use
  Timeline timeline;                             // of the pipeline, in seconds; empty unless asked for
  Provenance provenance = Provenance::roofline;  // of the weakest number that matters
  double error_bar = 0;                          // relative
  double cost_per_million_tokens = 0;            // 0: no price
};

struct PredictQuery {
  const ModelSpec& model;
  const ClusterSpec& cluster;
  std::string precision = "bf16";
  TrainerTraits trainer = {};    // dtrain's, unless somebody else's published run is priced
  const Ops* backend = nullptr;  // whose workspace and packed sizes memory is counted with; null: an accelerator's
  int threads = 1;               // of a rank, for the backend's sizes
  bool keep_timeline = false;
  std::shared_ptr<WorkCache> works = {};  // of the same model, precision and backend; null: one of its own
};

// closed_form: the pipeline's bubble by formula; simulated: by running the schedule.
enum class Effort : uint8_t { closed_form, simulated };

// Keeps what layouts have in common (work of a layer by shape), so that many are priced fast. The query's model and
// cluster outlive it.
class Predictor {
 public:
  explicit Predictor(const PredictQuery& query);
  ~Predictor();
  const Topology& topology() const;
  double device_bytes() const;                    // what a rank may use
  WorstStage memory(const Layout& layout) const;  // closed form
  Prediction predict(const Layout& layout, Effort effort = Effort::simulated);
  // Of predict(), the time alone: for fits and searches.
  StepSeconds step_seconds(const Layout& layout, Effort effort);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

Json prediction_json(const Prediction& p);

}  // namespace rw
