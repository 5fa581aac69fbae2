#include "libcore/plan/price/op_price.h"

#include <doctest/doctest.h>

#include "libcore/base/error.h"

using namespace rw;

namespace {

DeviceType unit_device() {
  DeviceType d;
  d.name = "unit";
  d.peak_bf16 = 1e12;
  d.memory_bandwidth = 1e9;
  d.memory_fraction = 0.5;
  d.gemm_fraction = 0.5;
  d.attention_fraction = 0.25;
  d.misaligned_fraction = 0.1;
  d.launch = 1e-6;
  return d;
}

DeviceType four_units() {
  DeviceType d = unit_device();
  d.compute_units = 4;
  d.tile_m = 256;
  d.tile_n = 128;
  d.launch = 0;
  return d;
}

// Causal attention of n_seq sequences of s: 2 s flops for each row, head and element, two and a half times as many
// backward.
OpCall attention(const char* op, int64_t n_seq, int64_t s, int64_t heads, int64_t head_size) {
  OpCall call{.op = op, .scope = "", .shape = {.m = n_seq * s, .n = heads, .k = head_size}};
  const bool backward = call.op == "attention_bwd";
  call.cost.flops = static_cast<double>(2 * s * n_seq * s * heads * head_size) * (backward ? 2.5 : 1);
  return call;
}

}  // namespace

TEST_CASE("op_price: a product takes its FLOPs over the achievable peak, or its bytes over the achievable bandwidth") {
  const DeviceType d = unit_device();
  OpCall call{.op = "gemm", .scope = "", .shape = {.m = 1000, .n = 1000, .k = 1000}, .cost = {}, .calls = 3};
  call.cost.flops = 2e9;
  call.cost.bytes_read = 1e5;
  CHECK(op_seconds(call, d, DType::bf16) == doctest::Approx(3 * (2e9 / 5e11 + 1e-6)));
  call.cost.bytes_read = 1e9;
  CHECK(op_seconds(call, d, DType::bf16) == doctest::Approx(3 * (2.0 + 1e-6)));
}

TEST_CASE("op_price: tiles that do not fill the units cost as much as those that do") {
  const DeviceType d = four_units();
  CHECK(tile_efficiency(d, 256 * 4, 128) == doctest::Approx(1));
  // 5 large tiles fill 8 places, 10 halves 12 places, 20 quarters all 20 of them.
  CHECK(tile_efficiency(d, 256 * 5, 128) == doctest::Approx(0.92 * 10 / 12));
  // 129 rows hang over the edge of every tile: 256, 256 and 192 rows are computed, on 4 units.
  CHECK(tile_efficiency(d, 129, 128) == doctest::Approx(0.75 * 129 / 256));
  CHECK(tile_efficiency(d, 256, 128, 4) == doctest::Approx(1));
  CHECK(tile_efficiency(d, 256, 128, 3) < 1);
  CHECK(tile_efficiency(d, 0, 7) == 1);
  CHECK(tile_efficiency(unit_device(), 129, 3) == 1);
}

TEST_CASE("op_price: a taller product never takes less") {
  const DeviceType d = four_units();
  double last = 0;
  for (int64_t m = 1; m < 3000; ++m) {
    const double s = static_cast<double>(m) / tile_efficiency(d, m, 257);
    CHECK(s >= last * (1 - 1e-12));
    last = s;
  }
}

TEST_CASE("op_price: fused attention on a GPU reaches less with small heads and short sequences") {
  const DeviceType d = four_units();
  const double rate = 1e12 * 0.25;
  const OpCall half = attention("attention_fwd", 3, 256, 5, 128);  // s / (s + 256)
  CHECK(op_seconds(half, d, DType::bf16) == doctest::Approx(half.cost.flops / (rate / 2)));
  const OpCall small = attention("attention_fwd", 3, 256, 5, 32);  // 1.25 * 32 / 64
  CHECK(op_seconds(small, d, DType::bf16) == doctest::Approx(small.cost.flops / (rate / 2 * 0.625)));
  const OpCall back = attention("attention_bwd", 3, 256, 5, 128);
  CHECK(op_seconds(back, d, DType::bf16) == doctest::Approx(2.5 * half.cost.flops / (rate / 2)));
  CHECK(op_seconds(half, d, DType::bf16, {.rate = 0.5}) == doctest::Approx(2 * half.cost.flops / (rate / 2)));
  const DeviceType cpu = unit_device();
  CHECK(op_seconds(small, cpu, DType::bf16) == doctest::Approx(small.cost.flops / rate + 1e-6));
}

TEST_CASE("op_price: unfused attention is two batched products of whole squares, and scores through memory") {
  const DeviceType d = four_units();
  const AttentionKernel unfused{.fused = false};
  // 4 squares of 256: of (256, 256) 8 tiles and of (256, 128) 4, all full. 2 s^2 k = 2^24 flops each and product.
  const double product = 4 * 16777216.0 / 5e11, scores = 4 * 65536.0 / 5e8;
  const OpCall call = attention("attention_fwd", 2, 256, 2, 128);
  CHECK(op_seconds(call, d, DType::bf16, unfused) == doctest::Approx(2 * product + 13 * scores));
  const OpCall back = attention("attention_bwd", 2, 256, 2, 128);
  CHECK(op_seconds(back, d, DType::bf16, unfused) == doctest::Approx(4 * product + 19 * scores));
  // Heads of 108 elements are no multiple of 16 bytes.
  DeviceType fast = d;
  fast.memory_bandwidth = 1e18;
  const double good = op_seconds(attention("attention_fwd", 2, 256, 2, 104), fast, DType::bf16, unfused);
  CHECK(op_seconds(attention("attention_fwd", 2, 256, 2, 108), fast, DType::bf16, unfused) > 9 * good);
}

TEST_CASE("op_price: a type without a peak is refused by name") {
  CHECK_THROWS_WITH_AS(peak_flops(unit_device(), DType::f32), doctest::Contains("unit"), Error);
}
