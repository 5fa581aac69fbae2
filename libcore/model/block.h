// A transformer block: one forward for training and serving; what differs is data. Shapes: T rows of the flat batch, C
// width, H query heads, Hkv key/value heads, D head size, F ffn width, U = 2F (gated) or F.
#pragma once
#include <cstdint>

#include "libcore/model/exec.h"
#include "libcore/model/grads.h"
#include "libcore/model/param_layout.h"
#include "libcore/model/rope_table.h"
#include "libcore/model/weights.h"

namespace rw {

// The pages of one layer's keys and values and where this batch's rows go: plain data, made by whoever owns the pool.
struct PagedKv {
  void *k_pages, *v_pages;     // (n_pages, page_tokens, Hkv, D)
  const int64_t* slot;         // (T) where each row's key and value are stored
  const int32_t* page_table;   // (n_seq, max_pages)
  const int32_t* context_len;  // (n_seq), this batch's rows included
  int64_t max_pages, page_tokens;
};

// Which rows belong together. Without pages every sequence starts at its first row; with pages it may continue.
struct AttnBatch {
  const int32_t* pos;         // (T) position of each row in its sequence
  const int32_t* cu_seqlens;  // (n_seq+1)
  int64_t n_seq, rows;
  const PagedKv* paged = nullptr;
};

// What a block's forward leaves for its backward. Serving points all layers at one set. The residual stream arrives as
// `x_in` plus the previous block's `branch` (null for the first): the sum is formed inside this block's first norm.
struct BlockActs {
  const void* x_in;              // (T, C)
  const void* branch_in;         // (T, C) or null
  void* x;                       // (T, C) x_in + branch_in; x_in itself when branch_in is null
  void* attn_norm;               // (T, C)
  float *attn_mean, *attn_rstd;  // (T)
  void* qkv;                     // (T, (H+2Hkv)*D), rotated
  void* attn;                    // (T, H*D)
  float* lse;                    // (T, H)
  void* out;                     // (T, C) output of the attention projection; scratch after the forward
  void* mid;                     // (T, C) x + out
  void* mlp_norm;                // (T, C)
  float *mlp_mean, *mlp_rstd;    // (T)
  void* up;                      // (T, U)
  void* act;                     // (T, F)
  void* branch;                  // (T, C) output of the mlp: the block's result is mid + branch
};

// Gradients on the way down. d_out arrives and stays until the weight half is done; d_x leaves.
struct BlockGradActs {
  const void* d_out;  // (T, C) of the block's result
  void* d_act;        // (T, F)
  void* d_up;         // (T, U)
  void* d_mlp_norm;   // (T, C)
  void* d_mid;        // (T, C)
  void* d_attn;       // (T, H*D)
  void* d_qkv;        // (T, (H+2Hkv)*D)
  void* d_attn_norm;  // (T, C)
  void* d_x;          // (T, C)
};

struct BlockShape {
  explicit BlockShape(const ModelSpec& s);
  NormKind norm;
  bool gated;
  int64_t c, h, hkv, d, f, u, qkv_n;
  float eps, scale;
};

void block_fwd(const BlockWeights& w, const BlockActs& a, const AttnBatch& batch, const BlockShape& s,
               const RopeTable* rope, const Exec& exec);
// The backward is two calls: input gradients first (what the previous stage waits for), weight gradients when it suits.
void block_bwd_input(const BlockWeights& w, const BlockActs& a, const BlockGradActs& g, const AttnBatch& batch,
                     const BlockShape& s, const RopeTable* rope, const Exec& exec);
void block_bwd_weight(const BlockWeights& w, const BlockActs& a, const BlockGradActs& g, const AttnBatch& batch,
                      const BlockParams& grads, Write write, const BlockShape& s, const Exec& exec);

}  // namespace rw
