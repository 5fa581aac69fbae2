// gelu(x) = x/2 (1 + tanh u) with u = sqrt(2/pi) (x + 0.044715 x^3) is x * sigmoid(2u): an exponential and a
// reciprocal.
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/sigmoid.h"
#include "kernels/cpu/variant.h"

namespace rw::RW_ISA {
namespace {

constexpr float kA = 1.5957691216f;  // 2 sqrt(2/pi)
constexpr float kB = 0.044715f * kA;

RW_INLINE vf gelu(vf x) { return x * sigmoid_exp2(x * (-kA * kLog2e + -kB * kLog2e * (x * x))).s; }

RW_INLINE vf gelu_slope(vf x) {
  const vf square = x * x;
  const Sigmoid g = sigmoid_exp2(x * (-kA * kLog2e + -kB * kLog2e * square));
  return g.s + x * g.s * g.rest * (kA + 3.0f * kB * square);
}

}  // namespace

void gelu_fwd(const GeluFwd& a, Stream s) {
  with_type(a.t, [&](auto element) {
    using T = decltype(element);
    const T* x = static_cast<const T*>(a.x);
    T* y = static_cast<T*>(a.y);
    parallel_ranges(s.threads, a.n, kElementGrain, [&](int64_t begin, int64_t end) {
      each_vector(begin, end, [&](int64_t i, auto part) RW_LAMBDA {
        fetch_ahead(x + i);
        store(y + i, gelu(load(x + i, part)), part);
      });
    });
  });
}

void gelu_bwd(const GeluBwd& a, Stream s) {
  with_type(a.t, [&](auto element) {
    using T = decltype(element);
    const T *x = static_cast<const T*>(a.x), *d_y = static_cast<const T*>(a.d_y);
    T* d_x = static_cast<T*>(a.d_x);
    parallel_ranges(s.threads, a.n, kElementGrain, [&](int64_t begin, int64_t end) {
      each_vector(begin, end, [&](int64_t i, auto part) RW_LAMBDA {
        fetch_ahead(x + i);
        fetch_ahead(d_y + i);
        store(d_x + i, load(d_y + i, part) * gelu_slope(load(x + i, part)), part);
      });
    });
  });
}

}  // namespace rw::RW_ISA
