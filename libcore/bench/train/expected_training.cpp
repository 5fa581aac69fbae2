#include "libcore/bench/train/expected_training.h"

#include <fmt/format.h>

#include <algorithm>

#include "libcore/base/error.h"
#include "libcore/model/exec.h"
#include "libcore/train/dry_run.h"
#include "libcore/train/setup.h"

namespace rw {
namespace {

StepKernels step_kernels(const TrainSeries& s, double bytes_per_s) {
  const Exec backend{
      .ops = this_cpu_ops(), .stream = {.threads = static_cast<int>(s.threads)}, .t = precision_type(s.what.spec)};
  const DryRun run = dry_run({.step = step_settings(s.what.spec, s.model, s.layout),
                              .backend = backend,
                              .ranks_per_node = std::max<int64_t>(1, s.ranks_per_node)},
                             0);
  StepKernels k;
  for (const auto& [op, count] : run.ops) {
    const double bytes = count.cost.bytes_read + count.cost.bytes_written;
    k.calls[op] = count.calls;
    k.all_calls += count.calls;
    k.flops += count.cost.flops;
    k.bytes += bytes;
    k.roofline_s += std::max(count.cost.flops / s.peak_flops_per_rank, bytes_per_s > 0 ? bytes / bytes_per_s : 0.0);
  }
  k.flops_s = k.flops / s.peak_flops_per_rank;
  return k;
}

bool ran_on_cpus(const TrainSeries& s) { return s.backend.starts_with("cpu"); }

}  // namespace

TrainExpectation expected_training(const TrainSeries& series, const ClusterSpec* cluster, double bytes_per_s) {
  TrainExpectation e;
  e.kernels = step_kernels(series, bytes_per_s);
  if (cluster == nullptr) return e;
  if (series.what.ranks > cluster->device_count()) {
    e.note = fmt::format("no prediction: {} ranks, but the cluster {} has {} devices", series.what.ranks, cluster->name,
                         cluster->device_count());
    return e;
  }
  try {
    const bool cpu = cluster->device_of(cluster->nodes.front()).is_cpu();
    if (cpu != ran_on_cpus(series)) {
      e.note = fmt::format("no prediction: it ran on {}, and the cluster {} has {}", series.device, cluster->name,
                           cpu ? "CPUs" : "GPUs");
      return e;
    }
    PredictQuery query{series.model, *cluster};
    query.precision = series.what.spec.precision;
    query.backend = cpu ? &this_cpu_ops() : nullptr;
    query.threads = static_cast<int>(series.threads);
    Predictor predictor(query);
    e.prediction = predictor.predict(series.layout);
    e.cluster = cluster->name;
  } catch (const Error& error) {
    e.note = fmt::format("no prediction: {}", error.what());
  }
  return e;
}

}  // namespace rw
