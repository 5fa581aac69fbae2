// What this machine's cores reach when all its ranks work: the peaks and the copy that `dbench kernels` holds its ops
// against, measured with one team of threads a rank at the same time, as ranks share clocks, caches and memory.
#pragma once
#include <cstdint>
#include <string>

namespace rw {

struct CpuSpeedJob {
  int ranks = 1, threads = 1;      // threads of a rank
  double seconds = 0.3;            // of each measurement
  int64_t copy_bytes = 256 << 20;  // that a rank copies at a time; more than the caches hold
};

struct CpuSpeed {
  // Of the slowest rank: the others wait for it.
  double peak_f32 = 0, peak_bf16 = 0, peak_f16 = 0;  // FLOP/s
  double bytes_per_s = 0;                            // of a copy, bytes read and written
  // Of training's products at two sizes and of its attention, in bf16 (cpu_training_ops.h), FLOP/s.
  double small_products = 0, large_products = 0, attention = 0;
  double launch_s = 0;  // of a team that has nothing to do
  std::string instruction_f32, instruction_bf16;
  double cpu_share = 0;  // CPU seconds per thread and second of wall time, over all of it
};

// The numbers that of several ranks the slowest's count.
constexpr double CpuSpeed::*kSlowestCounts[] = {
    &CpuSpeed::peak_f32,       &CpuSpeed::peak_bf16,      &CpuSpeed::peak_f16, &CpuSpeed::bytes_per_s,
    &CpuSpeed::small_products, &CpuSpeed::large_products, &CpuSpeed::attention};
constexpr int64_t kSmallProduct = 256, kLargeProduct = 1024;

// Below this share the threads waited for a core: others were on the machine.
constexpr double kQuietCpuShare = 0.9;

CpuSpeed measure_cpu_speed(const CpuSpeedJob& job);

}  // namespace rw
