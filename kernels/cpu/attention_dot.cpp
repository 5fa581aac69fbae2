// Attention with vdpbf16ps: AMD since Zen 4, Intel since Cooper Lake.
#include "kernels/cpu/attention_backward.h"
#include "kernels/cpu/attention_bf16.h"
#include "kernels/cpu/attention_bf16_math.h"
#include "kernels/cpu/paged_prefill.h"

namespace rw::RW_ISA {
namespace {

struct DotMath : Bf16Packing {
  using V = __m512bh;
  struct Session {};

  RW_INLINE static V load_words(const uint32_t* p) { return __builtin_bit_cast(V, _mm512_loadu_si512(p)); }
  RW_INLINE static V broadcast(uint32_t a) { return __builtin_bit_cast(V, _mm512_set1_epi32(static_cast<int>(a))); }
  RW_INLINE static vf mul_add(vf c, V a, V b) { return _mm512_dpbf16_ps(c, a, b); }
  static void multiply(const Product<uint32_t>& p) { blocked_product<DotMath, false>(p); }
  static void multiply_add(const Product<uint32_t>& p) { blocked_product<DotMath, true>(p); }
};

}  // namespace

void attention_fwd_dot(const AttentionFwd& a, Stream stream) { forward<DotMath, bf16>(a, stream); }
void attention_bwd_dot(const AttentionBwd& a, Stream stream) { backward<DotMath, bf16>(a, stream); }
void paged_prefill_dot(const PagedAttention& a, Stream stream) {
  if (a.kv_t == DType::bf16) prefill<DotMath, bf16, bf16>(a, stream.threads);
  else prefill<DotMath, bf16, int8_t>(a, stream.threads);
}

}  // namespace rw::RW_ISA
