// The tile unit (Intel AMX): whether this process may use it, and the one tile shape that we use. Tiles 0..3 accumulate
// (16,16) f32; 4, 5 hold rows of A as (16, 32) bf16; 6, 7 hold B as (16, 16) pairs of bf16.
// Only files compiled with -mamx-tile -mamx-bf16 include this.
#pragma once
#include <immintrin.h>

#include <cstdint>

namespace rw {

// The tile intrinsics of g++ 12 do not tell the compiler which memory they read: what `p` points to is stored before.
[[gnu::always_inline]] inline void stored_before_tiles(const void* p) { asm volatile("" ::"r"(p) : "memory"); }

// Tile shapes for this thread: `rows` (1..16) rows in the tiles 0, 1, 4 and 16 in the others.
[[gnu::always_inline]] inline void load_tile_config(int rows) {
  struct alignas(64) {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } config;
  config.rows[0] = config.rows[1] = config.rows[4] = static_cast<uint8_t>(rows);
  stored_before_tiles(&config);
  _tile_loadconfig(&config);
}

}  // namespace rw
