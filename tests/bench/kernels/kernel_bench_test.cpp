// dbench kernels: the cases cover the op table, the roofline is the arithmetic of its paper, and no verdict is given
// when the machine was not quiet.
#include "libcore/bench/kernels/kernel_bench.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "libcore/base/error.h"

using namespace rw;

namespace {

ModelSpec tiny(Family family) {
  const bool gpt2 = family == Family::gpt2;
  return {.family = family,
          .vocab_size = 101,
          .width = 24,
          .layers = 1,
          .heads = 3,
          .kv_heads = gpt2 ? 3 : 1,
          .head_dim = 8,
          .ffn = 40,
          .max_position = 64,
          .qkv_bias = gpt2,
          .out_bias = gpt2,
          .mlp_bias = gpt2};
}

}  // namespace

TEST_CASE("every op of a model runs, and is priced") {
  std::set<std::string> names;
  const std::unique_ptr<Device> device = open_device({.threads = 1});
  for (Family family : {Family::gpt2, Family::llama})
    for (DType t : {DType::f32, DType::bf16}) {
      const KernelShapes shapes{
          .model = tiny(family), .rows = 12, .seq_len = 6, .requests = 3, .context = 17, .head_rows = 5};
      for (const KernelCaseMaker& maker : kernel_cases(shapes, {*device, t})) {
        CAPTURE(maker.op);
        const KernelCase c = maker.make();
        c.run();
        c.run();
        CHECK(c.cost.bytes_read + c.cost.bytes_written > 0);
        CHECK(maker.t == t);
        CHECK(!maker.shape.empty());
        names.insert(maker.op.substr(0, maker.op.find(' ')));
      }
    }
  // All of the table but its sizes and `read`, which is no work.
  CHECK(names == std::set<std::string>{"gemm",
                                       "gemm_gelu",
                                       "gemm_pack",
                                       "bias_bwd",
                                       "layer_norm_fwd",
                                       "layer_norm_bwd",
                                       "rms_norm_fwd",
                                       "rms_norm_bwd",
                                       "rope",
                                       "attention_fwd",
                                       "attention_bwd",
                                       "kv_write",
                                       "paged_attention",
                                       "gelu_fwd",
                                       "gelu_bwd",
                                       "swiglu_fwd",
                                       "swiglu_bwd",
                                       "embedding_fwd",
                                       "embedding_bwd",
                                       "cross_entropy_part",
                                       "cross_entropy_finish",
                                       "adamw",
                                       "sum_squares",
                                       "cast",
                                       "add",
                                       "scale",
                                       "zero"});
}

TEST_CASE("the roofline: bound by FLOPs or by bytes, whichever takes longer") {
  const MachinePeaks peaks{.flops_f32 = 1e12, .flops_bf16 = 8e12, .bytes_per_s = 1e11};
  KernelTiming k{.t = DType::f32,
                 .us = {10, 12, 9},
                 .cost = {.flops = 5e6, .bytes_read = 1e5, .bytes_written = 0},
                 .cpu_share = 1};
  CHECK(roofline_share(k, peaks) == doctest::Approx(0.5));  // 5 us of FLOPs, 1 us of bytes
  k.t = DType::bf16;
  CHECK(roofline_share(k, peaks) == doctest::Approx(0.1));  // 0.6 us of FLOPs
  k.cost.bytes_written = 9e5;
  CHECK(roofline_share(k, peaks) == doctest::Approx(1.0));
}

TEST_CASE("the record: a metric a kernel, and no verdict when threads waited for a core") {
  KernelBenchResult r;
  r.peaks = {.flops_f32 = 1e12, .flops_bf16 = 8e12, .bytes_per_s = 1e11};
  r.backend = "cpu/test";
  r.threads = 3;
  KernelTiming k;
  k.op = "add";
  k.shape = "7";
  k.us = {11, 10, 8};
  k.samples = 15;
  k.cost = {.flops = 1000, .bytes_read = 3e5, .bytes_written = 2e5};
  k.cpu_share = 0.97;
  r.timings = {k};
  k.op = "gemm qkv";
  k.cpu_share = 0.94;
  r.timings.push_back(k);
  r.is_quiet = false;
  const KernelBenchSpec spec{.model = "some", .rows = 14, .seq_len = 7};
  const BenchRecord record = kernel_record(spec, r);
  CHECK(record.bench == "kernels");
  CHECK(!record.quiet);
  const BenchMetric* us = find_metric(record, "kernel.add 7 f32.us");
  REQUIRE(us != nullptr);
  CHECK(us->samples == std::vector<double>{11, 10, 8});
  CHECK(us->limit.value() == doctest::Approx(5));  // 5e5 bytes at 1e11 bytes/s
  CHECK(us->better == Better::lower);
  CHECK(us->kind == MetricKind::time);
  CHECK(find_metric(record, "kernel.add 7 f32.flops")->samples == std::vector<double>{1000});
  CHECK(find_metric(record, "kernel.add 7 f32.bytes")->kind == MetricKind::count);
  CHECK(find_metric(record, "kernel.add 7 f32.bytes")->samples == std::vector<double>{5e5});
  CHECK(find_metric(record, "kernel.add 7 f32.gb_per_s")->samples[0] == doctest::Approx(50));
  CHECK(find_metric(record, "kernel.add 7 f32.roofline_share")->samples[0] == doctest::Approx(0.5));
  CHECK(find_metric(record, "kernel.gemm qkv 7 f32.us") != nullptr);
  CHECK(find_metric(record, "kernel.gemm qkv 7 f32.roofline_share") == nullptr);
  const Json details = Json::parse(record.details);
  CHECK(details["peaks"]["copy_gb_per_s"].get<double>() == doctest::Approx(100));
  CHECK(details["ops"][0]["roofline_share"].get<double>() == doctest::Approx(0.5));
  CHECK(details["ops"][1]["roofline_share"].is_null());
  CHECK(details["ops"][1]["quiet"] == false);
  CHECK(kernel_table(r).find("not quiet") != std::string::npos);
  CHECK(kernel_table(r).find("50.0 %") != std::string::npos);
  CHECK(kernel_table(r).find("NOT QUIET") == std::string::npos);
  // Peaks that others disturbed are no limit for anything.
  r.peaks.is_quiet = false;
  const BenchRecord busy = kernel_record(spec, r);
  CHECK(!find_metric(busy, "kernel.add 7 f32.us")->limit);
  CHECK(find_metric(busy, "kernel.add 7 f32.roofline_share") == nullptr);
  CHECK(Json::parse(busy.details)["peaks"]["quiet"] == false);
  CHECK(kernel_table(r).find("NOT QUIET") != std::string::npos);
  CHECK(kernel_table(r).find("no peak") != std::string::npos);
}

TEST_CASE("a run over one op, and what is asked must exist") {
  KernelBenchSpec spec{.model = std::string(std::getenv("RANKWRIGHT_SOURCE")) + "/configs/models/tiny-llama.json",
                       .dtype = {"f32"},
                       .op = {"norm"},
                       .rows = 8,
                       .seq_len = 4,
                       .threads = 1,
                       .repeats = 2,
                       .seconds = 0};
  const auto run = [&] { return run_kernel_bench({.spec = spec}); };
  const KernelBenchResult found = run();
  REQUIRE(found.timings.size() == 2);
  CHECK(found.timings[0].op == "rms_norm_fwd");
  CHECK(found.timings[0].us.size() == 2);
  CHECK(found.timings[0].samples >= 6);
  CHECK(found.peaks.flops_f32 > 0);
  CHECK(found.peaks.bytes_per_s > 0);
  spec.seq_len = 3;
  CHECK_THROWS_AS(run(), Error);
  spec.seq_len = 4;
  spec.dtype = {"f16"};
  CHECK_THROWS_AS(run(), Error);
  spec.dtype = {"f32"};
  spec.op = {"nonsense"};
  CHECK_THROWS_AS(run(), Error);
  spec.model = "nowhere";
  CHECK_THROWS_AS(run(), Error);
}
