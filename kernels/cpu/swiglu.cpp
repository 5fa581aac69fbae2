#include "kernels/cpu/lanes.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/sigmoid.h"
#include "kernels/cpu/variant.h"

namespace rw::RW_ISA {

void swiglu_fwd(const SwigluFwd& a, Stream s) {
  with_type(a.t, [&](auto element) {
    using T = decltype(element);
    parallel_ranges(s.threads, a.rows, row_grain(a.f), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const T *gate = static_cast<const T*>(a.x) + r * 2 * a.f, *up = gate + a.f;
        T* y = static_cast<T*>(a.y) + r * a.f;
        each_vector(0, a.f, [&](int64_t i, auto part) RW_LAMBDA {
          fetch_ahead(gate + i);
          fetch_ahead(up + i);
          const vf g = load(gate + i, part);
          store(y + i, g * sigmoid_exp2(g * -kLog2e).s * load(up + i, part), part);
        });
      }
    });
  });
}

// silu'(g) = s + g s (1 - s) with s = sigmoid(g).
void swiglu_bwd(const SwigluBwd& a, Stream s) {
  with_type(a.t, [&](auto element) {
    using T = decltype(element);
    parallel_ranges(s.threads, a.rows, row_grain(a.f), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const T *gate = static_cast<const T*>(a.x) + r * 2 * a.f, *up = gate + a.f;
        const T* d_y = static_cast<const T*>(a.d_y) + r * a.f;
        T *d_gate = static_cast<T*>(a.d_x) + r * 2 * a.f, *d_up = d_gate + a.f;
        each_vector(0, a.f, [&](int64_t i, auto part) RW_LAMBDA {
          fetch_ahead(gate + i);
          fetch_ahead(up + i);
          fetch_ahead(d_y + i);
          const vf g = load(gate + i, part), u = load(up + i, part), d = load(d_y + i, part);
          const Sigmoid sg = sigmoid_exp2(g * -kLog2e);
          store(d_gate + i, d * u * sg.s * (1.0f + g * sg.rest), part);
          store(d_up + i, d * g * sg.s, part);
        });
      }
    });
  });
}

}  // namespace rw::RW_ISA
