// Attention with the tile unit, tdpbf16ps: a product of (16, 32) by (32, 16) bf16 in 16 cycles. What is left to do is
// the softmax, so this is bound by exp.
#include "kernels/cpu/attention_backward.h"
#include "kernels/cpu/attention_bf16.h"
#include "kernels/cpu/attention_bf16_math.h"
#include "kernels/cpu/gemm_amx_tiles.h"
#include "kernels/cpu/paged_prefill.h"

namespace rw::RW_ISA {
namespace {

// The tile intrinsics of g++ 12 do not tell the compiler which memory they read and write.
RW_INLINE void memory_barrier() { asm volatile("" ::: "memory"); }

struct TileMath : Bf16Packing {
  // The thread's tile shapes, given back as they were: whoever else multiplies with tiles in this thread may rely on
  // them.
  class Session {
   public:
    Session() {
      _tile_storeconfig(&before_);
      memory_barrier();
      load_tile_config(16);
    }
    ~Session() {
      if (before_.bytes[0] == 0) _tile_release();
      else _tile_loadconfig(&before_);
    }
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

   private:
    struct alignas(64) {
      uint8_t bytes[64];
    } before_;  // bytes[0] is the palette, 0 = none loaded
  };

  // Products have m and n in 32s and k in 32s (16 words): two by two tiles each time.
  template <bool kAccumulate>
  static void tiles(const Product<uint32_t>& p) {
    const int64_t lda = p.lda * 4, ldb = p.ldb * 4, ldc = p.ldc * 4;
    memory_barrier();
    for (int64_t col = 0; col < p.n; col += 32) {
      for (int64_t row = 0; row < p.m; row += 32) {
        float *c0 = p.c + row * p.ldc + col, *c1 = c0 + 16 * p.ldc;
        if constexpr (kAccumulate) {
          _tile_loadd(0, c0, ldc);
          _tile_loadd(1, c0 + 16, ldc);
          _tile_loadd(2, c1, ldc);
          _tile_loadd(3, c1 + 16, ldc);
        } else {
          _tile_zero(0);
          _tile_zero(1);
          _tile_zero(2);
          _tile_zero(3);
        }
        const uint32_t *a = p.a + row * p.lda, *b = p.b + col;
        for (int64_t k = 0; k < p.k_words; k += 16, a += 16, b += 16 * p.ldb) {
          _tile_loadd(6, b, ldb);
          _tile_loadd(4, a, lda);
          _tile_loadd(7, b + 16, ldb);
          _tile_loadd(5, a + 16 * p.lda, lda);
          _tile_dpbf16ps(0, 4, 6);
          _tile_dpbf16ps(1, 4, 7);
          _tile_dpbf16ps(2, 5, 6);
          _tile_dpbf16ps(3, 5, 7);
        }
        _tile_stored(0, c0, ldc);
        _tile_stored(1, c0 + 16, ldc);
        _tile_stored(2, c1, ldc);
        _tile_stored(3, c1 + 16, ldc);
      }
    }
    memory_barrier();
  }
  static void multiply(const Product<uint32_t>& p) { tiles<false>(p); }
  static void multiply_add(const Product<uint32_t>& p) { tiles<true>(p); }
};

}  // namespace

void attention_fwd_tiles(const AttentionFwd& a, Stream stream) { forward<TileMath, bf16>(a, stream); }
void attention_bwd_tiles(const AttentionBwd& a, Stream stream) { backward<TileMath, bf16>(a, stream); }
void paged_prefill_tiles(const PagedAttention& a, Stream stream) {
  if (a.kv_t == DType::bf16) prefill<TileMath, bf16, bf16>(a, stream.threads);
  else prefill<TileMath, bf16, int8_t>(a, stream.threads);
}

}  // namespace rw::RW_ISA
