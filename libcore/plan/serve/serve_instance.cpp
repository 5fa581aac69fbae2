#include "libcore/plan/serve/serve_instance.h"

#include <fmt/core.h>

#include <algorithm>

#include "kernels/plain_sizes.h"
#include "libcore/base/error.h"
#include "libcore/base/units.h"
#include "libcore/plan/price/collective_seconds.h"
#include "libcore/serve/serving_sizes.h"
#include "libcore/spec/tensor_parallel.h"

namespace rw {
namespace {

// Devices that do not cut products over units are CPUs: their kernels' packed weights and scratch count.
const Ops& sizes_of(const DeviceType& device) { return device.compute_units > 1 ? plain_sizes() : this_cpu_ops(); }

std::string bytes(int64_t n) { return format_bytes(static_cast<double>(n)); }

ServeMemory memory_of(const InstanceQuery& q, const DeviceType& device, const RunnerSpec& runner) {
  const RunnerSizes sizes = runner_sizes(runner, 0, static_cast<int>(q.tp));
  ServeMemory m{.device_bytes = std::max<int64_t>(device.memory - device.reserve, 0),
                .weights = sizes.weights,
                .runtime = sizes.runtime,
                .page_bytes = sizes.page_bytes,
                .page_tokens = runner.page_tokens,
                .fault = {}};
  MemoryAsked asked{.memory = q.spec.memory,
                    .utilization = q.spec.memory_utilization,
                    .available = m.device_bytes,
                    .weights = sizes.weights,
                    .runtime = sizes.runtime,
                    .page_bytes = sizes.page_bytes,
                    .page_tokens = runner.page_tokens,
                    .max_len = runner.max_len,
                    .most_pages = sizes.most_pages};
  const int64_t pages = (runner.max_len + runner.page_tokens - 1) / runner.page_tokens;
  // As memory_budget counts: the run time differs a little from start to start.
  m.least = (sizes.weights + sizes.runtime + sizes.runtime / 8 + pages * sizes.page_bytes + (1 << 20) - 1) >> 20 << 20;
  if (q.spec.memory > m.device_bytes) {
    m.fault = fmt::format("--memory {} is more than the {} of device {}", bytes(q.spec.memory), bytes(m.device_bytes),
                          device.name);
    return m;
  }
  try {
    const MemoryBudget b = memory_budget(asked);
    m.kv = b.kv;
    m.n_pages = b.n_pages;
    m.full_sequences = b.full_sequences;
  } catch (const Error& e) {
    m.fault = e.what();
  }
  asked.max_len = 1;
  asked.most_pages = 0;
  try {
    m.max_context = std::min(memory_budget(asked).n_pages * runner.page_tokens, q.model.max_position);
  } catch (const Error&) {
    m.max_context = 0;  // the weights alone are too much
  }
  return m;
}

}  // namespace

ServeInstance make_instance(const InstanceQuery& q) {
  if (const std::string fault = tp_fault(q.model, q.tp); !fault.empty()) fail(ErrorKind::usage, "{}", fault);
  const DeviceType& device = q.cluster.device_of(q.cluster.nodes.front());
  const TensorParallelLinks links = tensor_parallel_links(q.cluster, q.tp);
  ServeInstance made{
      .tp = q.tp,
      .max_len = q.spec.max_model_len > 0 ? q.spec.max_model_len : q.model.max_position,
      .memory = {},
      .scheduler = {},
      .price = {},
      .provenance = provenance_of(device.provenance) == Provenance::measured ? links.provenance : Provenance::guess};
  RunnerSpec runner = runner_spec({.spec = q.spec,
                                   .model = q.model,
                                   .max_len = made.max_len,
                                   .threads = static_cast<int>(std::max<int64_t>(q.spec.threads, 1))});
  runner.backend = &sizes_of(device);
  peak_flops(device, runner.precision);  // refused by name before anything is priced
  made.memory = memory_of(q, device, runner);
  made.scheduler = scheduler_spec(q.spec, made.memory.n_pages);
  if (!made.memory.fault.empty()) return made;
  made.price.emplace(StepPriceQuery{
      .runner = runner, .tp = q.tp, .device = device, .collective = links.seconds, .overhead_s = q.overhead_s});
  return made;
}

double sent_bytes_per_token(const ModelSpec& model, const ServeInstance& instance) {
  return instance.memory.kv_bytes_per_token() * static_cast<double>(instance.tp) /
         static_cast<double>(kv_share(model, instance.tp));
}

}  // namespace rw
