// Attention's entries of the op table: in f32 arithmetic on every instruction set (f16 always), and on bf16 products
// where there are.
#include "kernels/cpu/attention_backward.h"
#ifdef __AVX512BF16__
#include "kernels/cpu/attention_bf16.h"
#include "kernels/cpu/attention_bf16_math.h"
#include "kernels/cpu/gemm_amx.h"
#endif
#include "kernels/cpu/variant.h"
#include "libcore/base/check.h"

namespace rw::RW_ISA {
namespace {

template <class Args>
void check(const Args& a, const char* what) {
  CHECK(a.t == DType::f32 || a.t == DType::bf16 || a.t == DType::f16, "%s: type %s, expected f32, bf16 or f16", what,
        dtype_name(a.t));
  CHECK(a.d > 0 && a.kv_heads > 0 && a.heads % a.kv_heads == 0,
        "%s: %lld heads over %lld kv heads of size %lld; heads must be a multiple of kv heads", what,
        static_cast<long long>(a.heads), static_cast<long long>(a.kv_heads), static_cast<long long>(a.d));
  CHECK(a.workspace != nullptr || a.n_seq == 0, "%s: no workspace", what);
}

template <class M>
int64_t workspace_for(const AttentionBwd& a, int64_t threads) {
  const int64_t tokens = a.n_seq == 0 ? 0 : a.cu_seqlens[a.n_seq] - a.cu_seqlens[0];
  const int64_t fwd = ForwardSpace<M>::bytes(a.d, tokens, a.n_seq, a.kv_heads, threads);
  const int64_t bwd = BackwardSpace<M>::bytes(a.d, tokens, a.n_seq, threads);
  return fwd > bwd ? fwd : bwd;
}

}  // namespace

// Depends on n_seq and on the total number of tokens, not on how they are split.
int64_t attention_workspace(const AttentionBwd& a, Stream stream) {
#ifdef __AVX512BF16__
  if (a.t == DType::bf16) return workspace_for<Bf16Packing>(a, stream.threads);
#endif
  return workspace_for<F32Math>(a, stream.threads);
}

void attention_fwd(const AttentionFwd& a, Stream stream) {
  check(a, "attention_fwd");
  if (a.t == DType::f32) return forward<F32Math, float>(a, stream);
  if (a.t == DType::f16) return forward<F32Math, f16>(a, stream);
#ifdef __AVX512BF16__
  if (amx_ready()) return cpu_amx::attention_fwd_tiles(a, stream);
  attention_fwd_dot(a, stream);
#else
  forward<F32Math, bf16>(a, stream);
#endif
}

void attention_bwd(const AttentionBwd& a, Stream stream) {
  check(a, "attention_bwd");
  if (a.t == DType::f32) return backward<F32Math, float>(a, stream);
  if (a.t == DType::f16) return backward<F32Math, f16>(a, stream);
#ifdef __AVX512BF16__
  if (amx_ready()) return cpu_amx::attention_bwd_tiles(a, stream);
  attention_bwd_dot(a, stream);
#else
  backward<F32Math, bf16>(a, stream);
#endif
}

}  // namespace rw::RW_ISA
