#include "libcore/plan/op_price.h"

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
  d.launch = 1e-6;
  return d;
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
  DeviceType d = unit_device();
  d.compute_units = 4;
  d.tile_m = 128;
  d.tile_n = 256;
  CHECK(gemm_shape_efficiency(d, 128 * 4, 256, 512) == doctest::Approx(1));
  CHECK(gemm_shape_efficiency(d, 128 * 5, 256, 512) == doctest::Approx(5.0 / 8));
  CHECK(gemm_shape_efficiency(d, 129, 256, 512) == doctest::Approx(129.0 / 512));
  d.gemm_half_k = 512;
  CHECK(gemm_shape_efficiency(d, 128 * 4, 256, 512) == doctest::Approx(0.5));
}

TEST_CASE("op_price: a type without a peak is refused by name") {
  CHECK_THROWS_WITH_AS(peak_flops(unit_device(), DType::f32), doctest::Contains("unit"), Error);
}
