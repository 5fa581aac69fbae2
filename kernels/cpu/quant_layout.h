// How weights of 8 and 4 bits lie in memory (QuantPack).
//
// A panel holds 32 rows of b, called columns here as they are the columns of c, over all of k (padded to a multiple of
// 64 with zeros). Along k it is cut into blocks: a group (int8), or four groups (int4). A block is its head
//   int8   32 scales as bf16
//   int4   32 shared scales as bf16; for each of the four groups 16 bytes, the group's own scale of column i in the low
//          half of byte i, that of column 16 + i in the high half
// and then, for columns 0..15 and again for 16..31, lines of 64 bytes: a line is 4 neighbours in k of 16 columns, which
// is what vpdpbusd and the tile unit multiply.
//   int8   each byte is q + 128
//   int4   each byte is q + 8 of line 2i in its low half and of line 2i + 1 in its high half
// A line of int4 becomes one of int8 by q * (its group's own scale): no more than 8 * 15 in magnitude.
#pragma once
#include "kernels/ops.h"

namespace rw {

int64_t quant_packed_bytes(const QuantPack&, Stream);  // on every instruction set

// Rows of a as the product reads them (quant_rows.h): views of its workspace.
struct QuantRows {
  char* tiles;    // (m, k) numbers of 16 bits
  float* scales;  // (blocks, padded)
  int32_t* sums;  // (blocks, padded) 128 * the sum of the numbers: what the bias of the weights adds
  int64_t m, k, blocks;
  int64_t padded;  // m rounded up to fours
};

namespace {

constexpr int64_t kQuantTileRows = 16;
constexpr int64_t kQuantColumns = 32, kQuantStep = 64, kQuantMaxBlock = 512;
constexpr int64_t kQuantLine = 64, kQuantLinesPerStep = kQuantStep / 4;

struct QuantLayout {
  QuantBits bits;
  int64_t group, block;       // elements of k
  int64_t k, panels, blocks;  // k padded
  int64_t head, half_step;    // bytes: of a block's head, of 64 of k of 16 columns
  int64_t panel;              // bytes

  [[gnu::always_inline]] QuantLayout(QuantBits quant_bits, int64_t group_size, int64_t n, int64_t k_size)
      : bits(quant_bits), group(group_size) {
    const bool wide = bits == QuantBits::int8;
    block = wide ? group : 4 * group;
    k = (k_size + kQuantStep - 1) / kQuantStep * kQuantStep;
    panels = (n + kQuantColumns - 1) / kQuantColumns;
    blocks = (k + block - 1) / block;
    head = wide ? 64 : 128;
    half_step = wide ? 1024 : 512;
    panel = blocks * head + k / kQuantStep * 2 * half_step;
  }
  // Of block b: where it begins in its panel, and how many steps of 64 it has.
  [[gnu::always_inline]] int64_t offset(int64_t b) const { return b * (head + block / kQuantStep * 2 * half_step); }
  [[gnu::always_inline]] int64_t steps(int64_t b) const {
    const int64_t left = k - b * block;
    return (left < block ? left : block) / kQuantStep;
  }
};

}  // namespace
}  // namespace rw
