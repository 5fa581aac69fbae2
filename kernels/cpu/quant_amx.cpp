// A block of a quantised product on the tile unit: 16 rows of a, their upper and their lower bytes, times 32 columns of
// weights: tdpsud of signed with biased bytes. Sums leave the tiles once a block; those of one tile of rows are added
// to c while the next is multiplied.
#include <immintrin.h>

#include "kernels/cpu/gemm_amx_tiles.h"
#include "kernels/cpu/quant_block.h"
#include "kernels/cpu/quant_lines.h"
#include "kernels/cpu/quant_rows.h"

namespace rw::RW_ISA {
namespace {

// Sums of one tile of rows: upper and lower bytes of columns 0..15, then of 16..31.
struct alignas(64) Sums {
  int32_t part[4][kQuantTileRows][16];
};

// A block of a tile of rows, when its sums are there.
struct Finished {
  const Sums* sums;
  __m512 columns[2];  // scales of the weights
  const float* scales;
  const int32_t* biases;
  float* c;
  int64_t fours = 0;  // of rows
};

// Four rows of it after four into c, begin <= four < end.
RW_INLINE void add_fours(const Finished& f, int64_t begin, int64_t end) {
  for (int64_t four = begin; four < end; ++four) {
#pragma GCC unroll 4
    for (int64_t i = 0; i < 4; ++i) {
      const int64_t r = 4 * four + i;
      const __m512i bias = _mm512_set1_epi32(f.biases[r]);
      const vf scale = splat(f.scales[r]);
      float* c = f.c + r * kQuantColumns;
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const __m512i upper = _mm512_load_si512(f.sums->part[2 * half][r]);
        const __m512i lower = _mm512_load_si512(f.sums->part[2 * half + 1][r]);
        const __m512i sum = _mm512_sub_epi32(_mm512_add_epi32(_mm512_slli_epi32(upper, 8), lower), bias);
        store(c + 16 * half, add_group(load(c + 16 * half), __builtin_bit_cast(vi, sum), scale, f.columns[half]));
      }
    }
  }
}

}  // namespace

void quant_tiles_enter(int64_t rows) {
  struct alignas(64) {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } config;
  for (int i = 0; i < 6; ++i) config.rows[i] = static_cast<uint8_t>(rows);
  stored_before_tiles(&config);
  _tile_loadconfig(&config);
}
void quant_tiles_leave() { _tile_release(); }

void multiply_by_tiles(const QuantBlocks& q) {
  Sums sums[2];
  int turn = 0;
  Finished before;
  const int64_t all_steps = (q.blocks - 1) * q.steps + q.last_steps;
  const int64_t weights_ahead = (q.ahead_bytes / 64 + q.tiles * all_steps - 1) / (q.tiles * all_steps);
  const char* ahead = q.ahead;
  for (int64_t i = 0; i < q.tiles; ++i) {
    const int64_t tile = q.first_tile + i, n = rows_in(q.rows, tile);
    const char* a = step_of(q.rows, tile, q.first * q.steps);
    const int64_t next_tile = i + 1 < q.tiles ? kQuantTileRows * q.rows.k * 2 : 0;
    for (int64_t j = 0; j < q.blocks; ++j) {
      const int64_t b = q.first + j, steps = j + 1 < q.blocks ? q.steps : q.last_steps;
      const char* lines = q.lines + j * q.line_stride;
      Sums& mine = sums[turn];
      stored_before_tiles(a);
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
      for (int64_t s = 0; s < steps; ++s, a += n * 2 * kQuantStep, lines += kQuantStep * 16) {
        _tile_loadd(4, a, 64);
        _tile_loadd(6, lines, 64);
        _tile_dpbsud(0, 4, 6);
        _tile_loadd(5, a + n * kQuantStep, 64);
        _tile_dpbsud(1, 5, 6);
        _tile_loadd(7, lines + steps * kQuantStep * 16, 64);
        _tile_dpbsud(2, 4, 7);
        _tile_dpbsud(3, 5, 7);
        for (int64_t x = 0; x < n * 2 * kQuantStep; x += 64) __builtin_prefetch(a + next_tile + x, 0, 3);
        for (int64_t x = 0; x < weights_ahead; ++x, ahead += 64) __builtin_prefetch(ahead, 0, 2);
        add_fours(before, before.fours * s / steps, before.fours * (s + 1) / steps);
      }
      _tile_stored(0, mine.part[0], 64);
      _tile_stored(1, mine.part[1], 64);
      _tile_stored(2, mine.part[2], 64);
      _tile_stored(3, mine.part[3], 64);
      stored_before_tiles(&mine);  // and the other way: what tiles stored is read
      const char* head = q.head + j * q.head_stride;
      before = {.sums = &mine,
                .columns = {column_scales(head, 0, 0), column_scales(head, 1, 0)},
                .scales = q.rows.scales + b * q.rows.padded + tile * kQuantTileRows,
                .biases = q.rows.sums + b * q.rows.padded + tile * kQuantTileRows,
                .c = q.c + i * kQuantTileRows * kQuantColumns,
                .fours = (n + 3) / 4};
      turn = 1 - turn;
    }
  }
  add_fours(before, 0, before.fours);
}

}  // namespace rw::RW_ISA
