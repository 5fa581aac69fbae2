// The cuda table's quantised products as its tests call them: in every order of the threads, which must give the same
// bits.
#pragma once
#include "tests/cuda/cuda_attention.h"

namespace rw::test {

inline void quant_gemm_in_each_order(const QuantGemm& g, Stream s) {
  same_in_each_order([&] { waited_cuda_ops().quant_gemm(g, s); }, {span_of(g.c, g.m, g.n, g.ldc, g.ct)});
}
// The bytes between the packed parts are nobody's: what unpacking gives is compared.
inline void quant_unpack_in_each_order(const QuantUnpack& p, Stream s) {
  same_in_each_order([&] { waited_cuda_ops().quant_unpack(p, s); }, {span_of(p.b, p.n, p.k, p.ldb, DType::f32)});
}
inline void quant_pack_in_each_order(const QuantPack& p, Stream s) {
  std::vector<float> b(static_cast<size_t>(p.n * p.k));
  same_in_each_order(
      [&] {
        waited_cuda_ops().quant_pack(p, s);
        waited_cuda_ops().quant_unpack(
            {.b = b.data(), .packed = p.packed, .n = p.n, .k = p.k, .bits = p.bits, .group = p.group}, s);
      },
      {span_of(b.data(), p.n, p.k, 0, DType::f32)});
}

inline Ops quant_ops_in_each_order() {
  Ops ops = waited_cuda_ops();
  ops.quant_pack = quant_pack_in_each_order;
  ops.quant_unpack = quant_unpack_in_each_order;
  ops.quant_gemm = quant_gemm_in_each_order;
  return ops;
}

}  // namespace rw::test
