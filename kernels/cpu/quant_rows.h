// The left side of a quantised product: rows of a as whole numbers of 16 bits, by blocks of k with a scale each.
// Compiled once per instruction set (see simd.h).
//
// Rows lie in tiles of 16 (the last may be shorter), a tile in steps of 64 of k. Where 8-bit products add up by fours
// (vpdpbusd, tiles) a step is the upper bytes of its rows, then the lower ones: a = 256 * upper + lower, both signed;
// elsewhere it is its rows of 16-bit numbers. Either is 128 bytes a row.
#pragma once
#include "kernels/cpu/quant_layout.h"
#include "kernels/cpu/round_to_int.h"

namespace rw::RW_ISA {
namespace {

#if defined(__AVX512VNNI__)
constexpr bool kSplitBytes = true;
#else
constexpr bool kSplitBytes = false;
#endif

RW_INLINE int64_t up_to(int64_t unit, int64_t n) { return (n + unit - 1) / unit * unit; }
// A tile is read as if it had 16 rows.
RW_INLINE int64_t quant_rows_bytes(int64_t m, const QuantLayout& l) {
  return m * l.k * 2 + 2 * up_to(64, up_to(4, m) * l.blocks * 4) + kQuantTileRows * 2 * kQuantStep;
}
RW_INLINE QuantRows quant_rows_at(char* at, int64_t m, const QuantLayout& l) {
  const int64_t tiles = m * l.k * 2, padded = up_to(4, m), scales = up_to(64, padded * l.blocks * 4);
  return {.tiles = at,
          .scales = reinterpret_cast<float*>(at + tiles),
          .sums = reinterpret_cast<int32_t*>(at + tiles + scales),
          .m = m,
          .k = l.k,
          .blocks = l.blocks,
          .padded = padded};
}
RW_INLINE int64_t rows_in(const QuantRows& q, int64_t tile) {
  const int64_t left = q.m - tile * kQuantTileRows;
  return left < kQuantTileRows ? left : kQuantTileRows;
}
RW_INLINE char* step_of(const QuantRows& q, int64_t tile, int64_t step) {
  return q.tiles + tile * kQuantTileRows * q.k * 2 + step * rows_in(q, tile) * 2 * kQuantStep;
}

// The largest that splits into two signed bytes.
constexpr float kMostOf16 = 127 * 256 + 127;

typedef int16_t vs16 __attribute__((vector_size(kW * 2)));

// n elements of a row, the rest of the steps zero: `steps` of block b.
template <class T>
RW_INLINE void quantise_row(const QuantRows& q, const T* x, int64_t row, int64_t b, int64_t n, int64_t first_step,
                            int64_t steps) {
  const float scale = largest_magnitude(x, n) / kMostOf16;
  const vf by = splat(scale > 0 ? 1 / scale : 0);
  const int64_t tile = row / kQuantTileRows, r = row % kQuantTileRows, rows = rows_in(q, tile);
  vi sum{};
  for (int64_t s = 0; s < steps; ++s) {
    char* dst = step_of(q, tile, first_step + s);
    for (int64_t i = 0; i < kQuantStep; i += kW) {
      const int64_t at = s * kQuantStep + i, left = n - at;
      const vf v = left >= kW ? load(x + at) : left > 0 ? load_n(x + at, left) : vf{};
      const vi a = round_to_int(v * by);
      sum += a;
      if constexpr (kSplitBytes) {
        const vi upper = (a + 128) >> 8;
        const vb hi = __builtin_convertvector(upper, vb), lo = __builtin_convertvector(a - (upper << 8), vb);
        __builtin_memcpy(dst + r * kQuantStep + i, &hi, sizeof hi);
        __builtin_memcpy(dst + (rows + r) * kQuantStep + i, &lo, sizeof lo);
      } else {
        const vs16 both = __builtin_convertvector(a, vs16);
        __builtin_memcpy(dst + 2 * (r * kQuantStep + i), &both, sizeof both);
      }
    }
  }
  uint32_t total = 0;  // modulo 2^32, as all sums of whole numbers here
  for (int64_t i = 0; i < kW; ++i) total += static_cast<uint32_t>(sum[i]);
  q.scales[b * q.padded + row] = scale;
  q.sums[b * q.padded + row] = static_cast<int32_t>(total * 128u);
}

}  // namespace
}  // namespace rw::RW_ISA
