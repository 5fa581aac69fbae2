// The inner piece of a quantised product: a stretch of k of one panel of weights with all rows of a row block.
#pragma once
#include "kernels/cpu/quant_layout.h"

namespace rw {

constexpr int64_t kQuantStretch = 256;  // of k: with it a panel, two tiles of rows and their sums fit L1

struct QuantBlocks {
  float* c;  // (rows, 32) is added to
  QuantRows rows;
  int64_t first_tile, tiles;         // of rows
  int64_t first, blocks;             // of the weights' blocks
  int64_t steps, last_steps;         // of 64 of k: of a block, of the last of these
  const char *head, *lines;          // of the first block: its scales; its lines as int8, of both halves of the columns
  int64_t head_stride, line_stride;  // bytes from block to block
  const char* ahead;                 // weights that come next, as many bytes as these
  int64_t ahead_bytes;
};

namespace cpu_amx {                    // only when amx_int8_ready()
void quant_tiles_enter(int64_t rows);  // rows of a tile of a, at most 16
void quant_tiles_leave();
void multiply_by_tiles(const QuantBlocks&);
}  // namespace cpu_amx

namespace cpu_avx512_bf16 {  // quant_gemm as on CPUs without tiles, for tests and benchmarks
void quant_gemm_without_tiles(const QuantGemm&, Stream);
}

}  // namespace rw
