// `dbench kernels`: every op at a model's shapes against the roofline (Williams, Waterman & Patterson 2009) of this
// machine, whose peaks are measured in the same run.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "libcore/base/fields.h"
#include "libcore/bench/kernels/kernel_cases.h"
#include "libcore/bench/record/bench_record.h"

namespace rw {

struct KernelBenchSpec {
  std::string model, device = "cpu";
  std::vector<std::string> dtype = {"f32", "bf16"}, op;  // op: words of the names; none means all
  int64_t rows = 2048, seq_len = 512, requests = 16, context = 512, threads = 0, repeats = 3;
  double seconds = 0.3;  // of measuring, an op, all repeats together
};
FieldList fields(KernelBenchSpec& spec);

// What the machine reaches at best, with these threads.
struct MachinePeaks {
  double flops_f32 = 0, flops_bf16 = 0;  // FLOP/s
  std::string instruction_f32, instruction_bf16;
  double bytes_per_s = 0;  // a copy larger than the caches, bytes read and written
  bool is_quiet = true;    // while they were measured; else they are too low, and no op is held against them
  double flops(DType t) const { return t == DType::f32 ? flops_f32 : flops_bf16; }
};

// Below this share of CPU time the threads waited for a core: others were on the machine, and times say nothing.
constexpr double kQuietShare = 0.95;

struct KernelTiming {
  std::string op, shape;
  DType t = DType::f32;
  std::vector<double> us;  // a repeat each: the median of its calls
  int64_t samples = 0;     // calls, all repeats together
  Cost cost;
  double cpu_share = 0;  // CPU seconds per thread and second of wall time; of a GPU, which does not tell, 1
  double median_us() const;
  bool is_quiet() const { return cpu_share >= kQuietShare; }
};
// Seconds that the roofline allows; over the measured: above 1 where the data lies in the caches.
double roofline_s(const KernelTiming& k, const MachinePeaks& peaks);
double roofline_share(const KernelTiming& k, const MachinePeaks& peaks);

struct KernelBenchResult {
  MachinePeaks peaks;
  std::string backend;  // the table's name, or the device's
  int64_t threads = 1;
  std::vector<KernelTiming> timings;
  double cpu_share = 1;
  bool is_quiet = true;  // for all of it
};
std::string kernel_table(const KernelBenchResult& result);
// A metric "kernel.OP SHAPE TYPE.us" an op, its rates beside it; details: {"peaks": {backend, threads,
// peak_gflop_per_s {f32, bf16}, instructions {f32, bf16}, copy_gb_per_s}, "ops": [{op, shape, type, us, samples, flops,
// bytes, gflop_per_s, gb_per_s, cpu_share, quiet, roofline_share (null: not quiet)}, ...]}.
BenchRecord kernel_record(const KernelBenchSpec& spec, const KernelBenchResult& result);

struct KernelBenchJob {
  const KernelBenchSpec& spec;
  // share -1: the peaks are measured.
  std::function<void(double share, const std::string& op)> progress = [](double, const std::string&) {};
};
// All ops once, then all again, `repeats` times: what changes on the machine meanwhile meets all of them alike. On a
// GPU ops are put on the stream many at a time, so that the wait for them does not count.
// Error{usage}, Error{input} for what the spec asks and cannot get: before the device is opened, but for heads that are
// too large for it.
KernelBenchResult run_kernel_bench(const KernelBenchJob& job);

}  // namespace rw
