// The vector functions of kernels/cpu/simd.h over arrays, one build for each instruction set.
#pragma once
#include <cstdint>

namespace rw::test {

enum class Probe : uint8_t { exp, tanh, log, rcp, sqrt };
struct ProbeArgs {
  Probe f;
  float* y;
  const float* x;
  int64_t n;
};
// Sums and maxima of the first n <= 16 elements, through load_n.
struct Reduced {
  float sum, max;
};

}  // namespace rw::test

#define RW_DECLARE_PROBE(isa)                    \
  namespace rw::isa {                            \
  void probe(const test::ProbeArgs&);            \
  test::Reduced reduce(const float*, int64_t n); \
  }

RW_DECLARE_PROBE(cpu_scalar)
RW_DECLARE_PROBE(cpu_avx2)
RW_DECLARE_PROBE(cpu_avx512)
RW_DECLARE_PROBE(cpu_avx512_bf16)
