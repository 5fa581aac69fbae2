// What serving should take, for `dbench validate`: the real scheduler on a virtual clock, its steps priced on a
// cluster.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "libcore/bench/record/bench_record.h"
#include "libcore/spec/cluster_spec.h"

namespace rw {

// A closed loop: `concurrency` requests of the same lengths at a time. They begin together, so they end together, and
// the next ones begin: each such wave is like the first.
struct ServedLoad {
  std::string model, precision = "f32";
  int64_t tp = 1, threads = 1;
  int64_t concurrency = 1, input_len = 1, output_len = 1;
};

struct ServingPrediction {
  double ttft_s = 0, tpot_s = 0;  // medians over a wave
  double output_throughput = 0;   // tokens/s
};

// The server's and the client's own work is not in it. Error{usage} for a model or degree that cannot be served so, or
// a cluster that does not say how fast its devices are in this precision.
ServingPrediction predict_serving(const ServedLoad& load, const ClusterSpec& cluster);
// Sets the predictions of a `dbench serve` record's medians and throughput.
void set_predictions(BenchRecord& record, const ServingPrediction& prediction);

}  // namespace rw
