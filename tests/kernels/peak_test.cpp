#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "kernels/cpu/gemm_amx.h"
#include "kernels/cpu/isa.h"
#include "kernels/ops.h"

namespace rw {
namespace {

TEST_CASE("measure_peak_flops: a plausible rate and the instruction that reached it") {
  for (DType t : {DType::f32, DType::bf16}) {
    for (int threads : {1, 2}) {
      const char* instruction = nullptr;
      const double rate = measure_peak_flops(t, Stream{threads}, 0.02, &instruction);
      CHECK(std::isfinite(rate));
      CHECK(rate > 1e8);
      REQUIRE(instruction);
      const std::string name = instruction;
      if (t == DType::f32) CHECK(name.find("bf16") == std::string::npos);
      if (!isa_supported(Isa::avx2)) CHECK(name == "sse2 mulps+addps");
      if (!amx_ready()) CHECK(name.find("amx") == std::string::npos);
    }
  }
}

TEST_CASE("measure_peak_flops: the name may be omitted") {
  CHECK(measure_peak_flops(DType::f32, Stream{1}, 0.01, nullptr) > 0);
}

}  // namespace
}  // namespace rw
