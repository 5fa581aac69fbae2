#include "tests/kernels/simd_probe.h"

#include "kernels/cpu/lanes.h"

namespace rw::RW_ISA {

void probe(const test::ProbeArgs& a) {
  each_vector(0, a.n, [&](int64_t i, auto part) RW_LAMBDA {
    const vf x = load(a.x + i, part);
    vf y = x;
    switch (a.f) {
      case test::Probe::exp: y = vexp(x); break;
      case test::Probe::tanh: y = vtanh(x); break;
      case test::Probe::log: y = vlog(x); break;
      case test::Probe::rcp: y = vrcp(x); break;
      case test::Probe::sqrt: y = vsqrt(x); break;
    }
    store(a.y + i, y, part);
  });
}

test::Reduced reduce(const float* x, int64_t n) {
  float sum = 0, max = -3e38f;
  each_vector(0, n, [&](int64_t i, auto part) RW_LAMBDA {
    sum += hsum(load(x + i, part));
    const float m = hmax(covered(load(x + i, part), part, -3e38f));
    max = m > max ? m : max;
  });
  return {sum, max};
}

}  // namespace rw::RW_ISA
