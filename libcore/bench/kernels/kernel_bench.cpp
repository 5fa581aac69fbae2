#include "libcore/bench/kernels/kernel_bench.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/bench/comm/comm_table.h"

namespace rw {
namespace {

struct Sampled {
  double us = 0, cpu_share = 0;
  int64_t samples = 0;
};

// At least 5 samples of one call, after one that does not count, until `seconds` are over.
Sampled sample(const std::function<void()>& run, double seconds, int threads) {
  run();
  std::vector<double> us;
  const double begin = now_s(), begin_cpu = process_cpu_s();
  double now = begin;
  while (us.size() < 5 || now < begin + seconds) {
    run();
    const double end = now_s();
    us.push_back((end - now) * 1e6);
    now = end;
  }
  return {median(us), (process_cpu_s() - begin_cpu) / (now - begin) / threads, static_cast<int64_t>(us.size())};
}

double copy_bytes_per_s(int threads, double seconds) {
  constexpr int64_t kBytes = 256 << 20;
  Arena arena;
  auto* from = static_cast<char*>(arena.take(kBytes, MemoryOwner::workspace, threads));
  auto* to = static_cast<char*>(arena.take(kBytes, MemoryOwner::workspace, threads));
  const Sampled s = sample(
      [&] {
#pragma omp parallel num_threads(threads)
        {
          const int64_t part = omp_get_thread_num(), parts = omp_get_num_threads();
          const int64_t first = kBytes * part / parts, last = kBytes * (part + 1) / parts;
          std::memcpy(to + first, from + first, static_cast<size_t>(last - first));
        }
      },
      seconds, threads);
  return 2.0 * kBytes / s.us * 1e6;
}

MachinePeaks measure_peaks(Stream stream, double seconds) {
  MachinePeaks p;
  const char* instruction = "";
  p.flops_f32 = measure_peak_flops(DType::f32, stream, seconds, &instruction);
  p.instruction_f32 = instruction;
  p.flops_bf16 = measure_peak_flops(DType::bf16, stream, seconds, &instruction);
  p.instruction_bf16 = instruction;
  p.bytes_per_s = copy_bytes_per_s(stream.threads, seconds);
  return p;
}

const Ops& this_machine() {
  try {
    return cpu_ops();
  } catch (const std::invalid_argument& e) {
    fail(ErrorKind::usage, "{}", e.what());
  }
}

DType find_dtype(const std::string& name) {
  for (DType t : {DType::f32, DType::bf16})
    if (name == dtype_name(t)) return t;
  fail(ErrorKind::usage, "--dtype: expected f32 or bf16, found \"{}\"", name);
}

bool is_wanted(const KernelBenchSpec& spec, const std::string& op) {
  return spec.op.empty() || std::any_of(spec.op.begin(), spec.op.end(),
                                        [&](const std::string& part) { return op.find(part) != std::string::npos; });
}

double bytes_of(const Cost& c) { return c.bytes_read + c.bytes_written; }

}  // namespace

FieldList fields(KernelBenchSpec& s) {
  return {
      {.name = "model",
       .value = &s.model,
       .help = "whose shapes: a config.json, a directory that holds one, or a name"},
      {.name = "rows", .value = &s.rows, .help = "tokens of a training batch", .min = 1, .max = 1e7},
      {.name = "seq-len", .value = &s.seq_len, .help = "tokens of its sequences; divides rows", .min = 1, .max = 1e7},
      {.name = "requests",
       .value = &s.requests,
       .help = "sequences that decode (paged_attention)",
       .min = 1,
       .max = 1e5},
      {.name = "context", .value = &s.context, .help = "tokens of each of them", .min = 1, .max = 1e6},
      {.name = "dtype", .value = &s.dtype, .help = "type of the activations (f32, bf16); may repeat"},
      {.name = "op", .value = &s.op, .help = "only ops whose name holds this; may repeat"},
      {.name = "threads", .value = &s.threads, .help = "OpenMP threads; 0: all", .min = 0, .max = 4096},
      {.name = "seconds", .value = &s.seconds, .help = "of measuring, an op", .min = 0, .max = 1e4},
  };
}

double roofline_share(const KernelTiming& k, const MachinePeaks& peaks) {
  const double least_s = std::max(k.cost.flops / peaks.flops(k.t), bytes_of(k.cost) / peaks.bytes_per_s);
  return k.us > 0 ? least_s / (k.us * 1e-6) : 0;
}

Json machine_peaks_json(const MachinePeaks& p, const std::string& backend, int threads) {
  return {{"backend", backend},
          {"threads", threads},
          {"peak_gflop_per_s", {{"f32", p.flops_f32 * 1e-9}, {"bf16", p.flops_bf16 * 1e-9}}},
          {"instructions", {{"f32", p.instruction_f32}, {"bf16", p.instruction_bf16}}},
          {"copy_gb_per_s", p.bytes_per_s * 1e-9}};
}

std::string kernel_table_head(const MachinePeaks& p, const std::string& backend, int threads) {
  return fmt::format(
      "# {}, {} threads; peaks: f32 {:.1f} GFLOP/s ({}), bf16 {:.1f} GFLOP/s ({}), copy {:.1f} GB/s\n"
      "# {:<24} {:<26} {:>4} {:>12} {:>10} {:>8} {:>9} {:>9}\n",
      backend, threads, p.flops_f32 * 1e-9, p.instruction_f32, p.flops_bf16 * 1e-9, p.instruction_bf16,
      p.bytes_per_s * 1e-9, "op", "shape", "type", "us", "GFLOP/s", "GB/s", "cpu/wall", "roofline");
}

std::string kernel_table_line(const KernelTiming& k, const MachinePeaks& peaks) {
  return fmt::format("  {:<24} {:<26} {:>4} {:>12.1f} {:>10.1f} {:>8.2f} {:>9.2f} {:>9}\n", k.op, k.shape,
                     dtype_name(k.t), k.us, k.cost.flops / k.us * 1e-3, bytes_of(k.cost) / k.us * 1e-3, k.cpu_share,
                     k.is_quiet() ? fmt::format("{:.1f} %", 100 * roofline_share(k, peaks)) : "not quiet");
}

Json kernel_timing_json(const KernelTiming& k, const MachinePeaks& peaks) {
  return {{"op", k.op},
          {"shape", k.shape},
          {"type", dtype_name(k.t)},
          {"us", k.us},
          {"samples", k.samples},
          {"flops", k.cost.flops},
          {"bytes", bytes_of(k.cost)},
          {"gflop_per_s", k.cost.flops / k.us * 1e-3},
          {"gb_per_s", bytes_of(k.cost) / k.us * 1e-3},
          {"cpu_share", k.cpu_share},
          {"quiet", k.is_quiet()},
          {"roofline_share", k.is_quiet() ? Json(roofline_share(k, peaks)) : Json()}};
}

bool run_kernel_bench(const KernelBenchJob& job) {
  const KernelBenchSpec& spec = job.spec;
  KernelShapes shapes{.model = load_model_spec(spec.model),
                      .rows = spec.rows,
                      .seq_len = spec.seq_len,
                      .requests = spec.requests,
                      .context = spec.context};
  if (spec.rows % spec.seq_len != 0)
    fail(ErrorKind::usage, "--rows {} is not divisible by --seq-len {}", spec.rows, spec.seq_len);
  const std::vector<KernelCaseMaker> known = kernel_cases(shapes, {this_machine(), Stream{.threads = 1}, DType::f32});
  std::string names;
  for (const KernelCaseMaker& maker : known)
    if (names.find(maker.op) == std::string::npos) names += (names.empty() ? "" : ", ") + std::string(maker.op);
  for (const std::string& op : spec.op)
    if (names.find(op) == std::string::npos)
      fail(ErrorKind::usage, "--op: expected some of {}, found \"{}\"", names, op);
  shapes.head_rows = std::min(shapes.head_rows, spec.rows);
  std::vector<DType> types;
  for (const std::string& name : spec.dtype) types.push_back(find_dtype(name));
  const Ops& ops = this_machine();
  const Stream stream{.threads = spec.threads > 0 ? static_cast<int>(spec.threads) : omp_get_max_threads()};
  const MachinePeaks peaks = measure_peaks(stream, std::max(0.05, spec.seconds));
  job.begin(peaks, ops.name, stream.threads);
  bool is_quiet = true;
  for (DType t : types)
    for (const KernelCaseMaker& maker : kernel_cases(shapes, {ops, stream, t})) {
      if (!is_wanted(spec, maker.op)) continue;
      const KernelCase c = maker.make();
      const Sampled s = sample(c.run, spec.seconds, stream.threads);
      const KernelTiming timing{maker.op, maker.shape, t, s.us, s.samples, c.cost, s.cpu_share};
      is_quiet = is_quiet && timing.is_quiet();
      job.report(timing, peaks);
    }
  return is_quiet;
}

}  // namespace rw
