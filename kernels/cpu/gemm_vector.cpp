// Matrix product on vector registers. A panel of A is (k, kRows) f32, a panel of B (k, kCols) f32 or bf16; the
// kernel holds kRows x kCols of C in registers and takes one row of each panel per step: 28 of AVX-512's 32 registers
// accumulate (6 x 2 of 16 below it), the elements of A come as broadcast operands.
#include "kernels/cpu/gemm_ahead.h"
#include "kernels/cpu/gemm_finish.h"
#include "kernels/cpu/gemm_panels.h"
#include "kernels/cpu/simd.h"

namespace rw::RW_ISA {

// f32 that is rounded to half on its way into an f32 panel.
struct HalfToBe {
  float x;
};
RW_INLINE vf load(const HalfToBe* p) { return as_stored<f16>(load(&p->x)); }
RW_INLINE vf load_n(const HalfToBe* p, int64_t n) { return as_stored<f16>(load_n(&p->x, n)); }

namespace {

constexpr int64_t kRows = kW == 16 ? 14 : 6, kCols = 2 * kW;
constexpr int64_t kGroup = 16;  // of k, between prefetches

// kW elements of k of every line go through a small block, which turns them over.
template <int64_t kWidth, class D, class S>
RW_INLINE void pack_inner(const PackPanel& p, D* dst) {
  const S* src = static_cast<const S*>(p.src);
  for (int64_t k0 = 0; k0 < p.k; k0 += kW) {
    const int64_t n = p.k - k0 < kW ? p.k - k0 : kW;
    float block[kCols > kRows ? kCols : kRows][kW];
    for (int64_t l = 0; l < kWidth; ++l) {
      store(block[l], l < p.lines ? (n == kW ? load(src + l * p.ld + k0) : load_n(src + l * p.ld + k0, n)) : vf{});
    }
    for (int64_t k = 0; k < n; ++k) {
      for (int64_t l = 0; l < kWidth; ++l) {
        if constexpr (sizeof(D) == 4) dst[(k0 + k) * kWidth + l] = block[l][k];
        else dst[(k0 + k) * kWidth + l] = to_bf16(block[l][k]);
      }
    }
  }
}

template <int64_t kWidth, class D, class S>
RW_INLINE void pack_outer(const PackPanel& p, D* dst) {
  const S* src = static_cast<const S*>(p.src);
  for (int64_t k = 0; k < p.k; ++k, src += p.ld, dst += kWidth) {
    for (int64_t l = 0; l < kWidth; l += kW) {
      const int64_t n = p.lines - l, room = kWidth - l;
      const vf v = n >= kW ? load(src + l) : load_n(src + l, n < 0 ? 0 : n);
      if (room >= kW) store(dst + l, v);
      else store_n(dst + l, v, room);
    }
  }
}

template <int64_t kWidth, class D, class S>
void pack(const PackPanel& p) {
  D* dst = static_cast<D*>(p.dst);
  if (p.axis == KAxis::k_inner) pack_inner<kWidth, D, S>(p, dst);
  else pack_outer<kWidth, D, S>(p, dst);
}

void pack_a(const PackPanel& p) {
  if (p.src_t == DType::f32) pack<kRows, float, float>(p);
  else pack<kRows, float, bf16>(p);
}
void pack_a_f16(const PackPanel& p) { pack<kRows, float, f16>(p); }
void pack_b_f32(const PackPanel& p) { pack<kCols, float, float>(p); }
void pack_b_bf16(const PackPanel& p) {
  if (p.src_t == DType::f32) pack<kCols, bf16, float>(p);
  else pack<kCols, bf16, bf16>(p);
}

void pack_b_f16(const PackPanel& p) {
  if (p.src_t == DType::f32) pack<kCols, float, HalfToBe>(p);
  else pack<kCols, float, f16>(p);
}

template <int64_t kR, class B>
void multiply_rows(const MultiplyPanels& p) {
  const float* a = static_cast<const float*>(p.a);
  const B* b = static_cast<const B*>(p.b);
  vf c0[kR], c1[kR];
#pragma GCC unroll 16
  for (int64_t r = 0; r < kR; ++r) {
    c0[r] = p.write == Write::accumulate ? load(p.tile + r * kCols) : vf{};
    c1[r] = p.write == Write::accumulate ? load(p.tile + r * kCols + kW) : vf{};
  }
  Ahead ahead(p, (p.k + kGroup - 1) / kGroup);
  for (int64_t k0 = 0; k0 < p.k; k0 += kGroup) {
    ahead.step();
    const int64_t end = p.k - k0 < kGroup ? p.k - k0 : kGroup;
    for (int64_t k = 0; k < end; ++k, a += kRows, b += kCols) {
      const vf b0 = load(b), b1 = load(b + kW);
#pragma GCC unroll 16
      for (int64_t r = 0; r < kR; ++r) {
        const vf x = splat(a[r]);
        c0[r] += x * b0;
        c1[r] += x * b1;
      }
    }
  }
#pragma GCC unroll 16
  for (int64_t r = 0; r < kR; ++r) {
    store(p.tile + r * kCols, c0[r]);
    store(p.tile + r * kCols + kW, c1[r]);
  }
}

template <class B>
void multiply(const MultiplyPanels& p) {
  switch (p.rows) {
    case 1: return multiply_rows<1, B>(p);
    case 2: return multiply_rows<2, B>(p);
    case 3:
    case 4: return multiply_rows<4, B>(p);
    case 5:
    case 6: return multiply_rows<6, B>(p);
    case 7:
    case 8: return multiply_rows < kRows < 8 ? kRows : 8, B > (p);
    default: return multiply_rows<kRows, B>(p);
  }
}

template <class Half>
void finish(const FinishTile& f) {
  finish_tile<kCols, Half>(f);
}
void enter(int64_t) {}
void leave() {}

}  // namespace

extern const PanelKernel vector_f32_kernel = {.mr = kRows,
                                              .nr = kCols,
                                              .kr = 1,
                                              .a_bytes_per_k = kRows * 4,
                                              .b_bytes_per_k = kCols * 4,
                                              .kc = 384,
                                              .pack_a = pack_a,
                                              .pack_b = pack_b_f32,
                                              .enter = enter,
                                              .leave = leave,
                                              .multiply = multiply<float>,
                                              .finish = finish<bf16>};
extern const PanelKernel vector_bf16_kernel = {.mr = kRows,
                                               .nr = kCols,
                                               .kr = 1,
                                               .a_bytes_per_k = kRows * 4,
                                               .b_bytes_per_k = kCols * 2,
                                               .kc = 384,
                                               .pack_a = pack_a,
                                               .pack_b = pack_b_bf16,
                                               .enter = enter,
                                               .leave = leave,
                                               .multiply = multiply<bf16>,
                                               .finish = finish<bf16>};
// Half is a storage type: panels are those of f32, and so is the product.
extern const PanelKernel vector_f16_kernel = {.mr = kRows,
                                              .nr = kCols,
                                              .kr = 1,
                                              .a_bytes_per_k = kRows * 4,
                                              .b_bytes_per_k = kCols * 4,
                                              .kc = 384,
                                              .pack_a = pack_a_f16,
                                              .pack_b = pack_b_f16,
                                              .enter = enter,
                                              .leave = leave,
                                              .multiply = multiply<float>,
                                              .finish = finish<f16>};

}  // namespace rw::RW_ISA
