// A product with GELU as the ops that it stands for: for tables that have no product with it, and for whoever counts
// ops.
#pragma once
#include "kernels/ops.h"
#include "libcore/base/check.h"

namespace rw {

// Whether a product is followed by GELU or its slope; as ops.h allows it.
inline bool has_gelu(const Gemm& g) {
  if (g.gelu == nullptr && g.gelu_slope_of == nullptr) return false;
  CHECK(g.write == Write::overwrite, "gemm: a product with GELU does not accumulate");
  CHECK(g.ldc == 0 || g.ldc == g.n, "gemm: GELU is of a tight c: ldc is %lld, n %lld", static_cast<long long>(g.ldc),
        static_cast<long long>(g.n));
  CHECK(g.gelu == nullptr || g.gelu_slope_of == nullptr, "gemm: both GELU and its slope");
  CHECK(g.gelu_slope_of == nullptr || g.bias == nullptr, "gemm: a slope with a bias");
  CHECK(g.gelu_slope_of == nullptr || g.gelu_slope_of != g.c, "gemm: c is where its slope is taken");
  return true;
}

// product(Gemm) without GELU, then, where asked for, gelu_fwd(GeluFwd) or gelu_bwd(GeluBwd).
template <class Product, class Forward, class Backward>
void in_parts(const Gemm& g, const Product& product, const Forward& gelu_fwd, const Backward& gelu_bwd) {
  if (!has_gelu(g)) return product(g);
  Gemm plain = g;
  plain.gelu = nullptr, plain.gelu_slope_of = nullptr;
  product(plain);
  const int64_t n = g.m * g.n;
  if (g.gelu != nullptr) gelu_fwd(GeluFwd{.y = g.gelu, .x = g.c, .n = n, .t = g.ct});
  else gelu_bwd(GeluBwd{.d_x = g.c, .d_y = g.c, .x = g.gelu_slope_of, .n = n, .t = g.ct});
}

}  // namespace rw
