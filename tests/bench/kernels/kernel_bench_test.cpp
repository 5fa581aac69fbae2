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
  for (Family family : {Family::gpt2, Family::llama})
    for (DType t : {DType::f32, DType::bf16}) {
      const KernelShapes shapes{
          .model = tiny(family), .rows = 12, .seq_len = 6, .requests = 3, .context = 17, .head_rows = 5};
      for (const KernelCaseMaker& maker : kernel_cases(shapes, {cpu_ops(), {.threads = 1}, t})) {
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
  KernelTiming k{
      .t = DType::f32, .us = 10, .cost = {.flops = 5e6, .bytes_read = 1e5, .bytes_written = 0}, .cpu_share = 1};
  CHECK(roofline_share(k, peaks) == doctest::Approx(0.5));  // 5 us of FLOPs, 1 us of bytes
  k.t = DType::bf16;
  CHECK(roofline_share(k, peaks) == doctest::Approx(0.1));  // 0.6 us of FLOPs
  k.cost.bytes_written = 9e5;
  CHECK(roofline_share(k, peaks) == doctest::Approx(1.0));
}

TEST_CASE("no verdict when threads waited for a core") {
  const MachinePeaks peaks{.flops_f32 = 1e12, .flops_bf16 = 8e12, .bytes_per_s = 1e11};
  KernelTiming k{
      .op = "add", .shape = "7", .us = 10, .samples = 5, .cost = {.flops = 1, .bytes_read = 5e5}, .cpu_share = 0.97};
  CHECK(kernel_timing_json(k, peaks)["roofline_share"].get<double>() == doctest::Approx(0.5));
  CHECK(kernel_timing_json(k, peaks)["quiet"] == true);
  k.cpu_share = 0.94;
  CHECK(kernel_timing_json(k, peaks)["roofline_share"].is_null());
  CHECK(kernel_timing_json(k, peaks)["quiet"] == false);
  CHECK(kernel_table_line(k, peaks).find("not quiet") != std::string::npos);
}

TEST_CASE("a run over one op, and what is asked must exist") {
  KernelBenchSpec spec{.model = std::string(std::getenv("RANKWRIGHT_SOURCE")) + "/configs/models/tiny-llama.json",
                       .dtype = {"f32"},
                       .op = {"norm"},
                       .rows = 8,
                       .seq_len = 4,
                       .threads = 1,
                       .seconds = 0};
  std::vector<KernelTiming> found;
  MachinePeaks peaks;
  const auto run = [&] {
    return run_kernel_bench({.spec = spec,
                             .begin = [&](const MachinePeaks& p, const std::string&, int) { peaks = p; },
                             .report = [&](const KernelTiming& k, const MachinePeaks&) { found.push_back(k); }});
  };
  run();
  REQUIRE(found.size() == 2);
  CHECK(found[0].op == "rms_norm_fwd");
  CHECK(found[0].samples >= 5);
  CHECK(peaks.flops_f32 > 0);
  CHECK(peaks.bytes_per_s > 0);
  spec.seq_len = 3;
  CHECK_THROWS_AS(run(), Error);
  spec.seq_len = 4;
  spec.dtype = {"f16"};
  CHECK_THROWS_AS(run(), Error);
  spec.model = "nowhere";
  CHECK_THROWS_AS(run(), Error);
}
