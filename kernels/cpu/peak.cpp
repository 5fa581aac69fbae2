#include <omp.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "kernels/cpu/gemm_amx.h"
#include "kernels/cpu/peak_loops.h"
#include "kernels/ops.h"

namespace rw {
namespace {

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::vector<PeakLoop> loops_for(DType t) {
  std::vector<PeakLoop> loops = {peak_scalar_fma};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) loops.push_back(peak_avx2_fma);
  if (__builtin_cpu_supports("avx512f")) loops.push_back(peak_avx512_fma);
  if (t == DType::bf16 && __builtin_cpu_supports("avx512bf16")) loops.push_back(peak_avx512_bf16_dot);
  if (t == DType::bf16 && amx_ready()) loops.push_back(peak_amx_bf16_dot);
  return loops;
}

// The best of the chunks that fill `seconds`: a peak is what the machine can do, not what a busy neighbour left of it.
double rate(const PeakLoop& loop, int threads, double seconds) {
  float sink = 0;
  auto chunk = [&](int64_t iterations) {
    const double start = now_s();
#pragma omp parallel num_threads(threads) reduction(+ : sink)
    {
      float mine = 0;
      loop.run(iterations, &mine);
      sink += mine;
    }
    return now_s() - start;
  };
  chunk(1000);
  int64_t iterations = 10000;
  double spent = chunk(iterations);
  while (spent < 0.002) spent = chunk(iterations *= 2);
  double best = spent;
  for (const double end = now_s() + seconds; now_s() < end;) best = std::min(best, chunk(iterations));
  volatile float keep = sink;
  static_cast<void>(keep);
  return loop.flops_per_iteration * static_cast<double>(iterations) * threads / best;
}

}  // namespace

double measure_peak_flops(DType t, Stream stream, double seconds, const char** instruction) {
  const std::vector<PeakLoop> loops = loops_for(t);
  double best = 0;
  for (const PeakLoop& loop : loops) {
    const double r = rate(loop, stream.threads, seconds / static_cast<double>(loops.size()));
    if (r > best) {
      best = r;
      if (instruction) *instruction = loop.instruction;
    }
  }
  return best;
}

}  // namespace rw
