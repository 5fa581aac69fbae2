#include "libcore/bench/kernels/kernel_bench.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/base/median.h"
#include "libcore/bench/record/machine.h"
#include "libcore/device/open_device.h"
#include "libcore/train/device_peak.h"

namespace rw {
namespace {

constexpr double kSampleS = 1e-3;
constexpr int64_t kMostCalls = 1000;

// Microseconds of a call, until `seconds` are over: at least `least` samples, after one that does not count. On a
// device (null: the host) a sample is the mean of as many calls as take a millisecond, and the wait for them.
std::vector<double> sample_us(Device* far, const std::function<void()>& run, double seconds, size_t least) {
  int64_t calls = 1;
  const auto measure = [&] {
    const double begin = now_s();
    for (int64_t i = 0; i < calls; ++i) run();
    if (far != nullptr) far->wait();
    return now_s() - begin;
  };
  measure();
  if (far != nullptr)
    calls = std::clamp<int64_t>(static_cast<int64_t>(kSampleS / std::max(measure(), 1e-9)), 1, kMostCalls);
  std::vector<double> us;
  const double begin = now_s();
  while (us.size() < least || now_s() < begin + seconds) us.push_back(measure() / static_cast<double>(calls) * 1e6);
  return us;
}

double copy_bytes_per_s(int threads, double seconds) {
  constexpr int64_t kBytes = 256 << 20;
  Arena arena;
  auto* from = static_cast<char*>(arena.take(kBytes, MemoryOwner::workspace, threads));
  auto* to = static_cast<char*>(arena.take(kBytes, MemoryOwner::workspace, threads));
  const std::vector<double> us = sample_us(
      nullptr,
      [&] {
#pragma omp parallel num_threads(threads)
        {
          const int64_t part = omp_get_thread_num(), parts = omp_get_num_threads();
          const int64_t first = kBytes * part / parts, last = kBytes * (part + 1) / parts;
          std::memcpy(to + first, from + first, static_cast<size_t>(last - first));
        }
      },
      seconds, 5);
  return 2.0 * kBytes / median(us) * 1e6;
}

// The best of several rounds: a peak, and its instruction, is what the machine can do, not what others left of it.
MachinePeaks measure_peaks(Stream stream, double seconds) {
  constexpr int kRounds = 3;
  MachinePeaks p;
  QuietMeter meter(stream.threads);
  meter.start();
  for (int round = 0; round < kRounds; ++round) {
    const auto take = [&](DType t, double& best, std::string& of) {
      const char* instruction = "";
      const double flops = measure_peak_flops(t, stream, seconds / kRounds, &instruction);
      if (flops > best) best = flops, of = instruction;
    };
    take(DType::f32, p.flops_f32, p.instruction_f32);
    take(DType::bf16, p.flops_bf16, p.instruction_bf16);
  }
  p.bytes_per_s = copy_bytes_per_s(stream.threads, seconds);
  meter.stop();
  p.is_quiet = meter.is_quiet();
  return p;
}

// Elements are scaled in place: read and written. So many that they do not stay in a cache.
double device_bytes_per_s(Device& device, double seconds) {
  double rate = 0;
  for (int64_t n = 1 << 16; n <= int64_t{1} << 28; n *= 4) {
    Arena arena(device.memory());
    Scale scale{.y = arena.take(n * 4, MemoryOwner::workspace), .s = 1.0f, .n = n, .t = DType::f32};
    const double us = median(sample_us(
        &device, [&] { device.ops().scale(scale, device.stream()); }, seconds / 4, 3));
    rate = 8.0 * static_cast<double>(n) / us * 1e6;
    if (us > 1e6 * kSampleS) break;
  }
  return rate;
}

MachinePeaks device_peaks(Device& device, double seconds) {
  MachinePeaks p;
  p.instruction_f32 = p.instruction_bf16 = "a large product";
  p.flops_f32 = measure_device_peak(device, DType::f32, seconds);
  p.flops_bf16 = measure_device_peak(device, DType::bf16, seconds);
  p.bytes_per_s = device_bytes_per_s(device, seconds);
  return p;
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
double gflop_per_s(const KernelTiming& k) { return k.cost.flops / k.median_us() * 1e-3; }
double gb_per_s(const KernelTiming& k) { return bytes_of(k.cost) / k.median_us() * 1e-3; }

Json peaks_json(const KernelBenchResult& r) {
  const MachinePeaks& p = r.peaks;
  return {{"backend", r.backend},
          {"threads", r.threads},
          {"quiet", p.is_quiet},
          {"peak_gflop_per_s", {{"f32", p.flops_f32 * 1e-9}, {"bf16", p.flops_bf16 * 1e-9}}},
          {"instructions", {{"f32", p.instruction_f32}, {"bf16", p.instruction_bf16}}},
          {"copy_gb_per_s", p.bytes_per_s * 1e-9}};
}

Json timing_json(const KernelTiming& k, const MachinePeaks& peaks) {
  return {{"op", k.op},
          {"shape", k.shape},
          {"type", dtype_name(k.t)},
          {"us", k.median_us()},
          {"samples", k.samples},
          {"flops", k.cost.flops},
          {"bytes", bytes_of(k.cost)},
          {"gflop_per_s", gflop_per_s(k)},
          {"gb_per_s", gb_per_s(k)},
          {"cpu_share", k.cpu_share},
          {"quiet", k.is_quiet()},
          {"roofline_share", k.is_quiet() && peaks.is_quiet ? Json(roofline_share(k, peaks)) : Json()}};
}

void add_metrics(BenchRecord& record, const KernelTiming& k, const MachinePeaks& peaks) {
  const std::string name = fmt::format("kernel.{} {} {}", k.op, k.shape, dtype_name(k.t));
  const auto add = [&](const char* what, const char* unit, MetricKind kind, std::vector<double> samples) {
    BenchMetric m;
    m.name = name + what;
    m.unit = unit;
    m.better = kind == MetricKind::fact ? Better::higher : Better::lower;
    m.kind = kind;
    m.samples = std::move(samples);
    record.metrics.push_back(std::move(m));
  };
  add(".us", "us", MetricKind::time, k.us);
  if (peaks.is_quiet) record.metrics.back().limit = 1e6 * roofline_s(k, peaks);
  add(".gflop_per_s", "GFLOP/s", MetricKind::fact, {gflop_per_s(k)});
  add(".gb_per_s", "GB/s", MetricKind::fact, {gb_per_s(k)});
  if (k.is_quiet() && peaks.is_quiet) add(".roofline_share", "", MetricKind::fact, {roofline_share(k, peaks)});
  add(".flops", "FLOP", MetricKind::count, {k.cost.flops});
  add(".bytes", "bytes", MetricKind::count, {bytes_of(k.cost)});
}

// Of the spec alone, before a device is opened.
KernelShapes checked_shapes(const KernelBenchSpec& spec) {
  check_device_name(spec.device);
  KernelShapes shapes{.model = load_model_spec(spec.model),
                      .rows = spec.rows,
                      .seq_len = spec.seq_len,
                      .requests = spec.requests,
                      .context = spec.context};
  if (spec.rows % spec.seq_len != 0)
    fail(ErrorKind::usage, "--rows {} is not divisible by --seq-len {}", spec.rows, spec.seq_len);
  shapes.head_rows = std::min(shapes.head_rows, spec.rows);
  for (const std::string& name : spec.dtype) find_dtype(name);
  const std::unique_ptr<Device> host = open_device({.device = "cpu"});  // it has the names of every device's
  std::string names;
  for (const KernelCaseMaker& maker : kernel_cases(shapes, {*host, DType::f32}))
    if (names.find(maker.op) == std::string::npos) names += (names.empty() ? "" : ", ") + std::string(maker.op);
  for (const std::string& op : spec.op)
    if (names.find(op) == std::string::npos)
      fail(ErrorKind::usage, "--op: expected some of {}, found \"{}\"{}", names, op,
           op.find("gelu") != std::string::npos ? " (those are of models with GELU, like gpt2-124m)" : "");
  return shapes;
}

// The ops and types that are asked for.
std::vector<KernelCaseMaker> wanted_cases(const KernelBenchSpec& spec, const KernelShapes& shapes, Device& device) {
  check_head_size(device, shapes.model.head_dim);
  std::vector<DType> types;
  for (const std::string& name : spec.dtype) types.push_back(find_dtype(name));
  std::vector<KernelCaseMaker> wanted;
  for (DType t : types)
    for (KernelCaseMaker& maker : kernel_cases(shapes, {device, t}))
      if (is_wanted(spec, maker.op)) wanted.push_back(std::move(maker));
  return wanted;
}

}  // namespace

FieldList fields(KernelBenchSpec& s) {
  return {
      {.name = "model",
       .value = &s.model,
       .help = "whose shapes: a config.json, a directory that holds one, or a name"},
      {.name = "device", .value = &s.device, .help = "cpu, cuda, or cuda:N"},
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
      {.name = "seconds",
       .value = &s.seconds,
       .help = "of measuring, an op, all repeats together",
       .min = 0,
       .max = 1e4},
      {.name = "repeats", .value = &s.repeats, .help = "rounds over all ops", .min = 1, .max = 1000},
  };
}

double KernelTiming::median_us() const { return median(us); }

double roofline_s(const KernelTiming& k, const MachinePeaks& peaks) {
  return std::max(k.cost.flops / peaks.flops(k.t), bytes_of(k.cost) / peaks.bytes_per_s);
}

double roofline_share(const KernelTiming& k, const MachinePeaks& peaks) {
  const double us = k.median_us();
  return us > 0 ? roofline_s(k, peaks) / (us * 1e-6) : 0;
}

std::string kernel_table(const KernelBenchResult& r) {
  const MachinePeaks& p = r.peaks;
  std::string text = fmt::format(
      "# {}, {} threads; peaks{}: f32 {:.1f} GFLOP/s ({}), bf16 {:.1f} GFLOP/s ({}), copy {:.1f} GB/s\n"
      "# {:<24} {:<26} {:>4} {:>12} {:>10} {:>8} {:>9} {:>9}\n",
      r.backend, r.threads, p.is_quiet ? "" : " (NOT QUIET: others were on the machine, it does better)",
      p.flops_f32 * 1e-9, p.instruction_f32, p.flops_bf16 * 1e-9, p.instruction_bf16, p.bytes_per_s * 1e-9, "op",
      "shape", "type", "us", "GFLOP/s", "GB/s", "cpu/wall", "roofline");
  for (const KernelTiming& k : r.timings)
    text += fmt::format("  {:<24} {:<26} {:>4} {:>12.1f} {:>10.1f} {:>8.2f} {:>9.2f} {:>9}\n", k.op, k.shape,
                        dtype_name(k.t), k.median_us(), gflop_per_s(k), gb_per_s(k), k.cpu_share,
                        !k.is_quiet() ? "not quiet"
                        : !p.is_quiet ? "no peak"
                                      : fmt::format("{:.1f} %", 100 * roofline_share(k, p)));
  return text;
}

BenchRecord kernel_record(const KernelBenchSpec& spec, const KernelBenchResult& r) {
  KernelBenchSpec copy = spec;
  BenchRecord record =
      new_record("kernels",
                 fmt::format("{} {} x {} tokens, {} x {} decoded, {} threads", spec.model, spec.rows / spec.seq_len,
                             spec.seq_len, spec.requests, spec.context, r.threads),
                 fields_json(fields(copy)));
  set_device(record, r.backend);
  record.repeats = spec.repeats;
  record.cpu_share = r.cpu_share;
  record.quiet = r.is_quiet;
  Json ops = Json::array();
  for (const KernelTiming& k : r.timings) {
    add_metrics(record, k, r.peaks);
    ops.push_back(timing_json(k, r.peaks));
  }
  record.details = Json{{"peaks", peaks_json(r)}, {"ops", ops}}.dump();
  return record;
}

KernelBenchResult run_kernel_bench(const KernelBenchJob& job) {
  const KernelBenchSpec& spec = job.spec;
  const int threads = spec.threads > 0 ? static_cast<int>(spec.threads) : omp_get_max_threads();
  const KernelShapes shapes = checked_shapes(spec);
  const std::unique_ptr<Device> device = open_device({.device = spec.device, .threads = threads});
  const bool is_far = device->memory() != nullptr;
  const std::vector<KernelCaseMaker> cases = wanted_cases(spec, shapes, *device);
  job.progress(-1, "the machine's peaks");
  KernelBenchResult result;
  result.backend = is_far ? device->name() : device->ops().name;
  result.threads = is_far ? 1 : threads;
  const double peak_s = std::max(0.05, spec.seconds);
  result.peaks = is_far ? device_peaks(*device, peak_s) : measure_peaks(device->stream(), peak_s);
  QuietMeter all(threads);
  std::vector<QuietMeter> meters(cases.size(), QuietMeter(threads));
  for (int64_t repeat = 0; repeat < spec.repeats; ++repeat)
    for (size_t i = 0; i < cases.size(); ++i) {
      job.progress(static_cast<double>(repeat * static_cast<int64_t>(cases.size()) + static_cast<int64_t>(i)) /
                       static_cast<double>(spec.repeats * static_cast<int64_t>(cases.size())),
                   cases[i].op);
      const KernelCase c = cases[i].make();
      if (repeat == 0) {
        KernelTiming timing;
        timing.op = cases[i].op;
        timing.shape = cases[i].shape;
        timing.t = cases[i].t;
        timing.cost = c.cost;
        result.timings.push_back(std::move(timing));
      }
      all.start();
      meters[i].start();
      const std::vector<double> us =
          sample_us(is_far ? device.get() : nullptr, c.run, spec.seconds / static_cast<double>(spec.repeats), 3);
      meters[i].stop();
      all.stop();
      result.timings[i].us.push_back(median(us));
      result.timings[i].samples += static_cast<int64_t>(us.size());
    }
  result.cpu_share = is_far ? 1 : all.cpu_share();
  result.is_quiet = (is_far || all.is_quiet()) && result.peaks.is_quiet;
  for (size_t i = 0; i < cases.size(); ++i) {
    result.timings[i].cpu_share = is_far ? 1 : meters[i].cpu_share();
    result.is_quiet = result.is_quiet && result.timings[i].is_quiet();
  }
  return result;
}

}  // namespace rw
