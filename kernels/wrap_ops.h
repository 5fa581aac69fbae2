// A table made of another one's functions, each called through the same wrapper.
#pragma once
#include <cstddef>

#include "kernels/ops.h"

namespace rw {

// An op's name as a template's argument.
template <size_t n>
struct OpName {
  char text[n];
  consteval OpName(const char (&s)[n]) {  // NOLINT: from a literal, unsaid
    for (size_t i = 0; i < n; ++i) text[i] = s[i];
  }
};

// W::call<&Ops::gemm, "gemm">(args, stream) for each op, and W::size<&Ops::gemm_workspace>(args, stream) for what asks
// for sizes.
template <class W>
constexpr Ops wrap_ops(const char* name) {
#define RW_CALL(op) .op = W::template call<&Ops::op, #op>
#define RW_SIZE(op) .op = W::template size<&Ops::op>
  return {
      .name = name,
      RW_CALL(gemm),
      RW_CALL(gemm_pack),
      RW_SIZE(gemm_workspace),
      RW_SIZE(packed_bytes),
      RW_CALL(quant_pack),
      RW_CALL(quant_unpack),
      RW_CALL(quant_gemm),
      RW_SIZE(quant_packed_bytes),
      RW_SIZE(quant_gemm_workspace),
      RW_CALL(bias_bwd),
      RW_CALL(norm_fwd),
      RW_CALL(norm_bwd),
      RW_CALL(rope),
      RW_CALL(attention_fwd),
      RW_CALL(attention_bwd),
      RW_SIZE(attention_workspace),
      RW_CALL(kv_write),
      RW_CALL(paged_attention),
      RW_SIZE(paged_attention_workspace),
      RW_CALL(gelu_fwd),
      RW_CALL(gelu_bwd),
      RW_CALL(swiglu_fwd),
      RW_CALL(swiglu_bwd),
      RW_CALL(embedding_fwd),
      RW_CALL(embedding_bwd),
      RW_CALL(cross_entropy_part),
      RW_CALL(cross_entropy_finish),
      RW_CALL(sample_scan),
      RW_CALL(adamw),
      RW_CALL(sum_squares),
      RW_CALL(cast),
      RW_CALL(add),
      RW_CALL(scale),
      RW_CALL(zero),
      RW_CALL(read),
      RW_CALL(upload),
  };
#undef RW_CALL
#undef RW_SIZE
}

}  // namespace rw
