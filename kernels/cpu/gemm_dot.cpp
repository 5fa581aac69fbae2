// bf16 matrix product on vdpbf16ps, for CPUs with AVX512-BF16 and no tiles: as gemm_vector.cpp, with a pair of k where
// that has one. A panel of A is (k/2, 16 pairs), of which 14 are used; a panel of B (k/2, 32 pairs).
#include "kernels/cpu/gemm_ahead.h"
#include "kernels/cpu/gemm_finish.h"
#include "kernels/cpu/gemm_pairs.h"

namespace rw::RW_ISA {
namespace {

constexpr int64_t kRows = 14, kCols = 32, kGroup = 32;

// kBlocks of 16 lines side by side.
template <class S, int64_t kBlocks>
void pack_panel(const PackPanel& p) {
  char* dst = static_cast<char*>(p.dst);
  for (int64_t k = 0; k < p.k; k += kStep) {
    const int64_t pairs = p.k - k < kStep ? (p.k - k + 1) / 2 : kStep / 2;
    for (int64_t block = 0; block < kBlocks; ++block) {
      __m512i r[16];
      load_block<S, Registers::pairs>(p, block * kLines, k, r);
      for (int64_t i = 0; i < pairs; ++i) _mm512_storeu_si512(dst + 64 * (i * kBlocks + block), r[i]);
    }
    dst += 64 * kBlocks * pairs;
  }
}
void pack_a(const PackPanel& p) { pack_panel<bf16, 1>(p); }
void pack_b(const PackPanel& p) {
  if (p.src_t == DType::f32) pack_panel<float, 2>(p);
  else pack_panel<bf16, 2>(p);
}

template <int64_t kR>
void multiply_rows(const MultiplyPanels& p) {
  const int32_t* a = static_cast<const int32_t*>(p.a);
  const char* b = static_cast<const char*>(p.b);
  __m512 c0[kR], c1[kR];
#pragma GCC unroll 16
  for (int64_t r = 0; r < kR; ++r) {
    c0[r] = p.write == Write::accumulate ? _mm512_loadu_ps(p.tile + r * kCols) : _mm512_setzero_ps();
    c1[r] = p.write == Write::accumulate ? _mm512_loadu_ps(p.tile + r * kCols + 16) : _mm512_setzero_ps();
  }
  Ahead ahead(p, (p.k + kGroup - 1) / kGroup);
  for (int64_t k0 = 0; k0 < p.k; k0 += kGroup) {
    ahead.step();
    const int64_t end = p.k - k0 < kGroup ? p.k - k0 : kGroup;
    for (int64_t k = 0; k < end; k += 2, a += kLines, b += 128) {
      const __m512bh b0 = __builtin_bit_cast(__m512bh, _mm512_loadu_si512(b));
      const __m512bh b1 = __builtin_bit_cast(__m512bh, _mm512_loadu_si512(b + 64));
#pragma GCC unroll 16
      for (int64_t r = 0; r < kR; ++r) {
        const __m512bh x = __builtin_bit_cast(__m512bh, _mm512_set1_epi32(a[r]));
        c0[r] = _mm512_dpbf16_ps(c0[r], x, b0);
        c1[r] = _mm512_dpbf16_ps(c1[r], x, b1);
      }
    }
  }
#pragma GCC unroll 16
  for (int64_t r = 0; r < kR; ++r) {
    _mm512_storeu_ps(p.tile + r * kCols, c0[r]);
    _mm512_storeu_ps(p.tile + r * kCols + 16, c1[r]);
  }
}

void multiply(const MultiplyPanels& p) {
  switch ((p.rows + 1) / 2) {
    case 1: return p.rows == 1 ? multiply_rows<1>(p) : multiply_rows<2>(p);
    case 2: return multiply_rows<4>(p);
    case 3: return multiply_rows<6>(p);
    case 4: return multiply_rows<8>(p);
    case 5: return multiply_rows<10>(p);
    default: return multiply_rows<kRows>(p);
  }
}

void finish(const FinishTile& f) { finish_tile<kCols, bf16>(f); }
void enter(int64_t) {}
void leave() {}

}  // namespace

extern const PanelKernel dot_bf16_kernel = {.mr = kRows,
                                            .nr = kCols,
                                            .kr = 2,
                                            .a_bytes_per_k = 32,
                                            .b_bytes_per_k = 64,
                                            .kc = 768,
                                            .pack_a = pack_a,
                                            .pack_b = pack_b,
                                            .enter = enter,
                                            .leave = leave,
                                            .multiply = multiply,
                                            .finish = finish};

}  // namespace rw::RW_ISA
