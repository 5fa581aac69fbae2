// The pieces that blockwise attention is made of, for operands in f32 or in bf16 with f32 sums.
//
// A Math policy says how small matrices are held and multiplied. Its unit is the 32-bit word: one f32 (kPair 1), or two
// bf16 that are neighbours along the summed dimension (kPair 2), which is what the dot-product and tile instructions
// eat.
//   A operand: row-major, kPair elements along a row to the word.
//   B operand: row-major words (k/kPair, n): for bf16, rows 2i and 2i+1 of the matrix are interleaved into row i.
// A matrix of words transposed as 32-bit items turns one kind into the other: the words of A are those of B = A^T.
#pragma once
#include "kernels/cpu/simd.h"

namespace rw::RW_ISA {
namespace {

constexpr int64_t kBlock = 64;  // queries, and keys, to a block
constexpr int64_t kStep = 32;   // queries and keys are padded to a multiple of this (a tile product's k is 32)

constexpr int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }
constexpr int64_t min_of(int64_t a, int64_t b) { return a < b ? a : b; }
constexpr int64_t max_of(int64_t a, int64_t b) { return a > b ? a : b; }

// c(m,n) (+)= a(m,k) * b(k,n); strides in words.
template <class W>
struct Product {
  float* c;
  int64_t ldc;
  const W* a;
  int64_t lda;
  const W* b;
  int64_t ldb;
  int64_t m, n, k_words;
};

// 2^x for x <= 0 (not below 2^-126, so that no shift is needed to reach subnormals); NaN is kept. kTerms 4: 2.8e-6
// relative, 5: 1e-7.
template <int kTerms>
RW_INLINE vf exp2_negative(vf x) {
  x = vmax(splat(-126.0f), x);
  const vf t = x + 12582912.0f;  // 1.5 * 2^23 rounds to an integer, which then sits in the low bits
  const vf f = x - (t - 12582912.0f);
  vf p;
  if constexpr (kTerms == 4) {
    p = 9.582853221e-03f * f + 5.590642621e-02f;
    p = p * f + 2.402409862e-01f;
    p = p * f + 6.931241932e-01f;
  } else {
    p = 1.326472721e-03f * f + 9.671512812e-03f;
    p = p * f + 5.550733745e-02f;
    p = p * f + 2.402224208e-01f;
    p = p * f + 6.931469776e-01f;
  }
  p = p * f + 1.0f;
  return as_float(as_int(p) + (as_int(t) << 23));
}

// One register block of a product: kRows rows of a, kVecs vectors of b.
template <class M, int kRows, int kVecs, bool kAccumulate>
RW_INLINE void product_block(const Product<typename M::W>& p, int64_t row, int64_t col) {
  vf acc[kRows][kVecs];
  float* c = p.c + row * p.ldc + col;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) acc[r][v] = kAccumulate ? load(c + r * p.ldc + v * kW) : vf{};
  }
  const typename M::W* a = p.a + row * p.lda;
  const typename M::W* b = p.b + col;
  for (int64_t k = 0; k < p.k_words; ++k, b += p.ldb) {
    typename M::V bv[kVecs];
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) bv[v] = M::load_words(b + v * kW);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const typename M::V av = M::broadcast(a[r * p.lda + k]);
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) acc[r][v] = M::mul_add(acc[r][v], av, bv[v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) store(c + r * p.ldc + v * kW, acc[r][v]);
  }
}

// A whole product in register blocks; m is a multiple of 8, n of 16.
template <class M, bool kAccumulate>
[[gnu::noinline]] void blocked_product(const Product<typename M::W>& p) {
  constexpr int kRows = kW == 16 ? 8 : 4, kVecs = 2;
  int64_t col = 0;
  for (; col + kVecs * kW <= p.n; col += kVecs * kW) {
    for (int64_t row = 0; row < p.m; row += kRows) product_block<M, kRows, kVecs, kAccumulate>(p, row, col);
  }
  for (; col < p.n; col += kW) {
    for (int64_t row = 0; row < p.m; row += kRows) product_block<M, kRows, 1, kAccumulate>(p, row, col);
  }
}

// ---- packing --------------------------------------------------------------------------------------------------------

RW_INLINE vf interleave_low(vf a, vf b) {
#if defined(__AVX512F__)
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
#elif defined(__AVX2__)
  return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
#else
  return __builtin_shufflevector(a, b, 0, 4, 1, 5);
#endif
}
RW_INLINE vf interleave_high(vf a, vf b) {
#if defined(__AVX512F__)
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
#elif defined(__AVX2__)
  return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
#else
  return __builtin_shufflevector(a, b, 2, 6, 3, 7);
#endif
}

// dst(cols, rows) = src(rows, cols)^T, both of 32-bit words, rows and cols multiples of 16. log2(kW) perfect shuffles
// of kW rows make a transpose.
template <class W>
[[gnu::noinline]] void transpose_words(W* dst, int64_t ldd, const W* src, int64_t lds, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; r += kW) {
    for (int64_t c = 0; c < cols; c += kW) {
      vf x[kW], y[kW];
#pragma GCC unroll 16
      for (int i = 0; i < kW; ++i) __builtin_memcpy(&x[i], src + (r + i) * lds + c, sizeof(vf));
#pragma GCC unroll 4
      for (int64_t stage = 1; stage < kW; stage *= 2) {
#pragma GCC unroll 8
        for (int i = 0; i < kW / 2; ++i) {
          y[2 * i] = interleave_low(x[i], x[i + kW / 2]);
          y[2 * i + 1] = interleave_high(x[i], x[i + kW / 2]);
        }
#pragma GCC unroll 16
        for (int i = 0; i < kW; ++i) x[i] = y[i];
      }
#pragma GCC unroll 16
      for (int i = 0; i < kW; ++i) __builtin_memcpy(dst + (c + i) * ldd + r, &x[i], sizeof(vf));
    }
  }
}

// Rows of one head lie apart by all heads, often in another page each: too far for the CPU's own prefetching.
constexpr int64_t kRowsAhead = 12;
template <class T>
RW_INLINE void prefetch_row(const T* src, int64_t ld, int64_t row, int64_t d) {
  for (int64_t c = 0; c < d; c += 64 / static_cast<int64_t>(sizeof(T))) __builtin_prefetch(src + row * ld + c);
}

// A row of d elements of type T into dp (>= d) f32, zeros behind.
template <class T>
RW_INLINE void widen_row(float* dst, const T* src, int64_t d, int64_t dp) {
  int64_t c = 0;
  for (; c + kW <= d; c += kW) store(dst + c, load(src + c));
  if (c < d) {
    store(dst + c, load_n(src + c, d - c));
    c += kW;
  }
  for (; c < dp; c += kW) store(dst + c, vf{});
}

// (rows, d) f32 times `factor` to T, row stride ld.
template <class T>
void store_rows(T* dst, int64_t ld, const float* src, int64_t lds, int64_t rows, int64_t d, float factor) {
  for (int64_t r = 0; r < rows; ++r, dst += ld, src += lds) {
    int64_t c = 0;
    for (; c + kW <= d; c += kW) store(dst + c, load(src + c) * factor);
    if (c < d) store_n(dst + c, load(src + c) * factor, d - c);
  }
}

// ---- the f32 policy -------------------------------------------------------------------------------------------------

// Operands in f32, whatever the tensors' type: used for f32 and f16 on every set and for bf16 where there is no bf16
// product.
struct F32Math {
  using W = float;
  using V = vf;
  static constexpr int64_t kPair = 1, kPadD = 16;
  static constexpr int kExpTerms = 5;

  struct Session {};  // what a thread holds while it multiplies

  RW_INLINE static vf load_words(const float* p) { return load(p); }
  RW_INLINE static vf broadcast(float a) { return splat(a); }
  RW_INLINE static vf mul_add(vf c, vf a, vf b) { return c + a * b; }
  static void multiply(const Product<float>& p) { blocked_product<F32Math, false>(p); }
  static void multiply_add(const Product<float>& p) { blocked_product<F32Math, true>(p); }

  // Rows of a tensor, padded with zeros to `padded_rows` and dp: an A operand.
  template <class T>
  static void load_rows(float* dst, const T* src, int64_t ld, int64_t rows, int64_t padded_rows, int64_t d,
                        int64_t dp) {
    for (int64_t r = 0; r < rows; ++r) {
      prefetch_row(src, ld, min_of(r + kRowsAhead, rows - 1), d);
      widen_row(dst + r * dp, src + r * ld, d, dp);
    }
    for (int64_t i = rows * dp; i < padded_rows * dp; i += kW) store(dst + i, vf{});
  }
  // The B operand (rows/kPair, cols) of a matrix held as A rows (rows, cols/kPair words).
  static void pair_rows(float* dst, const float* src, int64_t rows, int64_t cols) {
    for (int64_t i = 0; i < rows * cols; i += kW) store(dst + i, load(src + i));
  }
  // Lanes [lane, lane + kW) of rows `row` and row + 1, into a B operand and into A rows.
  RW_INLINE static void put_b(float* b, int64_t ldb, int64_t row, int64_t lane, vf x0, vf x1) {
    store(b + row * ldb + lane, x0);
    store(b + (row + 1) * ldb + lane, x1);
  }
  RW_INLINE static void put_a(float* a, int64_t lda, int64_t row, int64_t lane, vf x0, vf x1) {
    put_b(a, lda, row, lane, x0, x1);
  }
};

}  // namespace
}  // namespace rw::RW_ISA
