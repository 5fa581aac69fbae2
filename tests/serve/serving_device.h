// What the serving tests compute on: this CPU, or, compiled with RW_TEST_CUDA, the simulator's device, each rank its
// own.
#pragma once
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "libcore/serve/sampler.h"
#if defined(RW_TEST_CUDA)
#include "libcore/comm/nccl_comm.h"
#endif

namespace rw::test {

struct RankDevice {
#if defined(RW_TEST_CUDA)
  RankDevice(Comm& host, bool on_cpu) {
    if (on_cpu) return;
    device = open_device({.device = "cuda", .local_rank = host.rank()});
    if (host.size() > 1) on_device = make_nccl_comm(host, *device);
  }
#else
  RankDevice(Comm&, bool) {}
#endif
  Comm& ranks(Comm& host) const { return on_device != nullptr ? *on_device : host; }
  DeviceMemory* memory() const { return device != nullptr ? device->memory() : nullptr; }

  std::unique_ptr<Device> device;  // null: this CPU
  std::unique_ptr<Comm> on_device;
};

// A sampler, and rows of logits where it looks for them.
class RankSampler {
 public:
  // rows: each of this rank's columns.
  RankSampler(int64_t vocab, VocabRange mine, Comm& comm, int threads, const std::vector<std::vector<float>>& rows,
              bool on_cpu = false)
      : on_(comm, on_cpu), arena_(on_.memory()), columns_(mine.end - mine.begin) {
    const auto n = static_cast<int64_t>(rows.size());
    logits_ = arena_.take_mirrored<float>(std::max<int64_t>(1, n * columns_), MemoryOwner::activations);
    for (int64_t i = 0; i < n; ++i)
      std::copy(rows[static_cast<size_t>(i)].begin(), rows[static_cast<size_t>(i)].end(), logits_.host + i * columns_);
    std::unique_ptr<DeviceLogits> seen;
    if (on_.device != nullptr) {
      const Exec exec{.ops = on_.device->ops(), .stream = on_.device->stream(), .t = DType::f32};
      exec.ops.upload(
          {.device = logits_.device, .host = logits_.host, .bytes = n * columns_ * static_cast<int64_t>(sizeof(float))},
          exec.stream);
      seen = std::make_unique<DeviceLogits>(
          DeviceLogits::Plan{.logits = logits_.device, .rows = n, .columns = columns_, .host = &arena_}, exec, arena_);
    }
    sampler_ = std::make_unique<Sampler>(vocab, mine, comm, threads, std::move(seen));
  }
  Sampler& operator*() { return *sampler_; }
  float* row(size_t i) { return logits_.device + static_cast<int64_t>(i) * columns_; }

 private:
  RankDevice on_;
  Arena arena_;
  int64_t columns_;
  Mirrored<float> logits_;
  std::unique_ptr<Sampler> sampler_;
};

}  // namespace rw::test
