// The pieces that our own matrix product is made of: a kernel multiplies one panel of A by one panel of B into one tile
// of C; the driver (gemm_panels.cpp) packs the panels, blocks them for the caches and deals them to the threads.
//
//   op(a)(m,k): panels of mr rows       op(b)(k,n): panels of nr columns       c: tiles (mr,nr) of f32
//
// k is padded with zeros to a multiple of kr, rows and columns to whole panels. Every element of c is one sum in rising
// k whose running value is kept in f32, whatever the blocking: so results depend neither on m, nor on the place of a
// row in its batch, nor on the threads.
#pragma once
#include "kernels/ops.h"

namespace rw {

// A panel to pack: `lines` rows of A (or columns of B), of k elements each. k_inner: a line's elements are adjacent and
// lines are ld apart; k_outer: the k-th elements of all lines are adjacent and successive k are ld apart.
enum class KAxis : uint8_t { k_inner, k_outer };
struct PackPanel {
  void* dst;
  const void* src;
  int64_t ld, lines, k;
  KAxis axis;
  DType src_t;
};

// tile(mr,nr) = [tile +] a panel * b panel, over k (a multiple of kr). Only the first `rows` rows need be right.
struct MultiplyPanels {
  float* tile;
  const void* a;
  const void* b;
  int64_t rows, k;
  Write write;
  // To bring nearer meanwhile: a part of the next panel of B, and the rows of c that will be written when this is done.
  const char* ahead;
  int64_t ahead_bytes;
  const char* c;  // null while more of k is to come
  int64_t c_stride, c_row_bytes;
};

// c(rows,cols) = tile [+ bias] [+ c]
struct FinishTile {
  void* c;            // first element of the tile in c
  const float* tile;  // row stride nr
  const float* bias;  // (cols) or null
  int64_t ldc, rows, cols;
  DType ct;
  Write write;
};

struct PanelKernel {
  int64_t mr, nr, kr;
  int64_t a_bytes_per_k, b_bytes_per_k;  // of a packed panel
  int64_t kc;                            // k per block: such that a panel of B stays in L1 and a block of A in L2
  void (*pack_a)(const PackPanel&);
  void (*pack_b)(const PackPanel&);
  void (*enter)(int64_t rows);  // each thread, before its first multiply; rows as in MultiplyPanels, at most mr
  void (*leave)();
  void (*multiply)(const MultiplyPanels&);
  void (*finish)(const FinishTile&);
};

// The four functions of the op table, for one kernel. `t` of the arguments has chosen the kernel.
void panels_gemm(const PanelKernel&, const Gemm&, Stream);
void panels_pack(const PanelKernel&, const GemmPack&, Stream);
int64_t panels_workspace(const PanelKernel&, const Gemm&, Stream);
int64_t panels_packed_bytes(const PanelKernel&, const GemmPack&);

}  // namespace rw
