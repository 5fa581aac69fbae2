#include "libcore/plan/measure/cpu_speed.h"

#include <omp.h>

#include <algorithm>
#include <barrier>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "kernels/ops.h"
#include "libcore/base/check.h"
#include "libcore/base/clock.h"
#include "libcore/plan/measure/cpu_training_ops.h"
#include "libcore/plan/measure/median_seconds.h"

namespace rw {
namespace {

struct Buffers {
  explicit Buffers(int64_t bytes, int threads)
      : from(new char[static_cast<size_t>(bytes)]), to(new char[static_cast<size_t>(bytes)]), n(bytes) {
    // Touched by those who will read it, so that it lies near them.
    run(threads, [&](char* to_part, const char*, size_t size, int64_t first) {
      std::memset(to_part, 1, size);
      std::memset(from.get() + first, 2, size);
    });
  }
  template <typename Part>
  void run(int threads, const Part& part) {
#pragma omp parallel num_threads(threads)
    {
      const int64_t i = omp_get_thread_num(), parts = omp_get_num_threads();
      const int64_t first = n * i / parts, last = n * (i + 1) / parts;
      part(to.get() + first, from.get() + first, static_cast<size_t>(last - first), first);
    }
  }
  std::unique_ptr<char[]> from, to;
  int64_t n;
};

double copy_bytes_per_s(const CpuSpeedJob& job, Buffers& buffers) {
  const double s = median_seconds(
      [&] {
        buffers.run(job.threads, [](char* to, const char* from, size_t size, int64_t) { std::memcpy(to, from, size); });
      },
      job.seconds);
  return 2.0 * static_cast<double>(buffers.n) / s;
}

double launch_seconds(const CpuSpeedJob& job) {
  constexpr int kTeams = 100;
  return median_seconds(
             [&] {
               for (int i = 0; i < kTeams; ++i) {
#pragma omp parallel num_threads(job.threads)
                 { asm volatile("" ::: "memory"); }
               }
             },
             job.seconds / 10) /
         kTeams;
}

// One rank's part; all ranks start each measurement together.
CpuSpeed measure_rank(const CpuSpeedJob& job, std::barrier<>& together) {
  const Stream stream{.threads = job.threads};
  CpuSpeed speed;
  Buffers buffers(job.copy_bytes, job.threads);
  const char* instruction = "";
  together.arrive_and_wait();
  speed.peak_f32 = measure_peak_flops(DType::f32, stream, job.seconds, &instruction);
  speed.instruction_f32 = instruction;
  together.arrive_and_wait();
  speed.peak_bf16 = measure_peak_flops(DType::bf16, stream, job.seconds, &instruction);
  speed.instruction_bf16 = instruction;
  together.arrive_and_wait();
  speed.peak_f16 = measure_peak_flops(DType::f16, stream, job.seconds, &instruction);
  together.arrive_and_wait();
  speed.bytes_per_s = copy_bytes_per_s(job, buffers);
  together.arrive_and_wait();
  speed.launch_s = launch_seconds(job);
  const TrainingOpsJob ops{.t = DType::bf16, .threads = job.threads, .seconds = job.seconds / 3};
  together.arrive_and_wait();
  speed.small_products = linear_layer_flops(ops, kSmallProduct);
  together.arrive_and_wait();
  speed.large_products = linear_layer_flops(ops, kLargeProduct);
  together.arrive_and_wait();
  speed.attention = attention_flops(ops);
  return speed;
}

}  // namespace

CpuSpeed measure_cpu_speed(const CpuSpeedJob& job) {
  CHECK(job.ranks > 0 && job.threads > 0 && job.copy_bytes >= job.threads, "%d ranks of %d threads", job.ranks,
        job.threads);
  std::vector<CpuSpeed> of_rank(static_cast<size_t>(job.ranks));
  std::barrier<> together(job.ranks);
  const double begin = now_s(), begin_cpu = process_cpu_s();
  {
    std::vector<std::jthread> ranks;
    for (CpuSpeed& speed : of_rank) ranks.emplace_back([&] { speed = measure_rank(job, together); });
  }
  const double cpu_share = (process_cpu_s() - begin_cpu) / (now_s() - begin) / job.ranks / job.threads;
  CpuSpeed slowest = of_rank.front();
  for (const CpuSpeed& s : of_rank) {
    for (double CpuSpeed::*number : kSlowestCounts) slowest.*number = std::min(slowest.*number, s.*number);
    slowest.launch_s = std::max(slowest.launch_s, s.launch_s);
  }
  slowest.cpu_share = cpu_share;
  return slowest;
}

}  // namespace rw
