// The logistic function for the activations that are built on it: silu is x * sigmoid(x), gelu's tanh form x *
// sigmoid(2u).
#pragma once
#include "kernels/cpu/simd.h"

namespace rw::RW_ISA {

constexpr float kLog2e = 1.44269504f;

// s = 1 / (1 + e^-x) and rest = 1 - s = e^-x * s without cancellation, from t = -x log2(e): callers that scale x anyhow
// fold log2(e) into their constants. Beyond |x| = 85 both keep their value there (1 and 1e-37), so that all stays
// finite and normal. 2^t = 2^n 2^f with |f| <= 1/2, a polynomial for 2^f.
struct Sigmoid {
  vf s, rest;
};
RW_INLINE Sigmoid sigmoid_exp2(vf t) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  t = vmax(splat(-122.0f), vmin(splat(122.0f), t));
  const vf n = (t + kRound) - kRound, f = t - n;
  vf p = 1.546981159e-04f * f + 1.341009294e-03f;
  p = p * f + 9.618030546e-03f;
  p = p * f + 5.550297041e-02f;
  p = p * f + 2.402265109e-01f;
  p = p * f + 6.931472256e-01f;
  const vf e = vscale2(p * f + 1.0f, n), s = vrcp(1.0f + e);
  return {s, e * s};
}

}  // namespace rw::RW_ISA
