#include "libcore/bench/train/serving_prediction.h"

#include <algorithm>

#include "libcore/base/error.h"
#include "libcore/base/median.h"
#include "libcore/plan/serve/serve_instance.h"
#include "libcore/plan/serve/serve_sim.h"
#include "libcore/plan/serve/workload.h"
#include "libcore/spec/model_spec.h"

namespace rw {

ServingPrediction predict_serving(const ServedLoad& load, const ClusterSpec& cluster) {
  const ModelSpec model = load_model_spec(load.model);
  ServeSpec asked;
  asked.model = load.model;
  asked.precision = load.precision;
  asked.threads = load.threads;
  ServeInstance server = make_instance({.model = model, .spec = asked, .cluster = cluster, .tp = load.tp});
  if (!server.price) fail(ErrorKind::usage, "{} cannot be served there: {}", load.model, server.memory.fault);

  Workload wave;
  wave.requests.assign(static_cast<size_t>(load.concurrency),
                       {.arrival_s = 0, .input = load.input_len, .output = load.output_len});
  const SimResult result = simulate({.workload = wave,
                                     .arrivals = stretched_arrivals(wave, 1),
                                     .scheduler = server.scheduler,
                                     .max_model_len = server.max_len,
                                     .step_s = [&](const PricedStep& step) { return server.price->seconds(step); }});
  std::vector<double> first, gap;
  for (const SimRequest& r : result.requests) {
    if (r.refused)
      fail(ErrorKind::usage, "{} tokens and {} more are too long for {}: at most {}", load.input_len, load.output_len,
           load.model, server.max_len);
    first.push_back(r.first_gap_s());
    gap.push_back(r.mean_gap_s());
  }
  return {.ttft_s = median(first),
          .tpot_s = median(gap),
          .output_throughput = static_cast<double>(result.tokens) / (result.end_s - result.begin_s)};
}

void set_predictions(BenchRecord& record, const ServingPrediction& prediction) {
  const std::pair<const char*, double> all[] = {{"median_ttft_from_due_ms", 1e3 * prediction.ttft_s},
                                                {"median_tpot_ms", 1e3 * prediction.tpot_s},
                                                {"output_throughput", prediction.output_throughput}};
  for (BenchMetric& m : record.metrics)
    for (const auto& [name, value] : all)
      if (m.name == name && value > 0) m.predicted = value;
}

}  // namespace rw
