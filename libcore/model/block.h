// A transformer block: one forward for training and serving; what differs is data. Shapes: T rows of the flat batch, C
// width, H query heads, Hkv key/value heads, D head size, F ffn width, U = 2F (gated) or F; H, Hkv and F are a rank's
// own share under tensor parallelism.
#pragma once
#include <cstdint>
#include <optional>

#include "libcore/model/block_shape.h"
#include "libcore/model/exec.h"
#include "libcore/model/grads.h"
#include "libcore/model/param_layout.h"
#include "libcore/model/rope_table.h"
#include "libcore/model/tensor_parallel.h"
#include "libcore/model/weights.h"

namespace rw {

// The pages of one layer's keys and values and where this batch's rows go: plain data, made by whoever owns the pool.
struct PagedKv {
  void *k_pages, *v_pages;     // (n_pages, page_tokens, Hkv, D)
  const int64_t* slot;         // (T) where each row's key and value are stored
  const int32_t* page_table;   // (n_seq, max_pages)
  const int32_t* context_len;  // (n_seq), this batch's rows included
  int64_t max_pages, page_tokens;
  std::optional<DType> kv_t = {};                  // of the pages: that of the activations, or i8 with scales
  float *k_scales = nullptr, *v_scales = nullptr;  // (n_pages, page_tokens, Hkv), with i8
};

// Which rows belong together. Without pages every sequence starts at its first row; with pages it may continue.
struct AttnBatch {
  const int32_t* pos;         // (T) position of each row in its sequence
  const int32_t* cu_seqlens;  // (n_seq+1)
  int64_t n_seq, rows;
  const PagedKv* paged = nullptr;
};

// What a block's forward leaves for its backward. Serving points all layers at one set; recomputed layers share what
// they make again. Tl: this rank's rows of the residual stream (T without sequence parallelism). The stream arrives as
// `x_in` plus the previous block's `branch_in` (null for the first of a stage): the sum is formed inside this block's
// first norm.
struct BlockActs {
  const void* x_in;              // (Tl, C)
  const void* branch_in;         // (Tl, C) or null
  void* x;                       // (Tl, C) x_in + branch_in; x_in itself when branch_in is null
  void* attn_norm;               // (Tl, C)
  float *attn_mean, *attn_rstd;  // (Tl)
  void* qkv;                     // (T, (H+2Hkv)*D), rotated
  void* attn;                    // (T, H*D)
  float* lse;                    // (T, H)
  void* mid;                     // (Tl, C) x + the attention's output
  void* mlp_norm;                // (Tl, C)
  float *mlp_mean, *mlp_rstd;    // (Tl)
  void* up;                      // (T, U); in inference it may be act where that is its GELU
  void* act;                     // (T, F)
  const void* branch;            // (Tl, C) output of the mlp: the block's result is mid + branch. Set by block_fwd.
};

// Gradients on the way down. d_out arrives and stays until the weight half is done; d_x leaves. The gradients of the
// norms' outputs are copied to `keep_*` where the weight half does not follow at once (null: it does).
struct BlockGradActs {
  const void* d_out;     // (Tl, C) of the block's result
  void* d_act;           // (T, F) scratch; null without gates
  void* d_up;            // (T, U)
  void* keep_mlp_norm;   // (Tl, C) or null
  void* d_mid;           // (Tl, C)
  void* d_attn;          // (T, H*D) scratch
  void* d_qkv;           // (T, (H+2Hkv)*D)
  void* keep_attn_norm;  // (Tl, C) or null
  void* d_x;             // (Tl, C)
  // Set by block_bwd_input for a weight half that follows at once:
  const void *d_mlp_norm, *d_attn_norm;  // (Tl, C)
  const void *d_out_full, *d_mid_full;   // (T, C)
};

struct BlockContext {
  const BlockShape& shape;
  const RopeTable* rope;  // null with learned positions
  const TensorParallel& tp;
  const Exec& exec;
};

void block_fwd(const BlockWeights& w, BlockActs& a, const AttnBatch& batch, const BlockContext& ctx);
// attn and lse from the rotated qkv, without pages: part of the forward, and all that selective recomputation repeats.
void block_attention(const BlockActs& a, const AttnBatch& batch, const BlockContext& ctx);
// Makes again everything that the backward reads, from x, with the forward's bits.
void block_recompute(const BlockWeights& w, const BlockActs& a, const AttnBatch& batch, const BlockContext& ctx);
// The backward is two calls: input gradients first (what the previous stage waits for), weight gradients when it suits.
void block_bwd_input(const BlockWeights& w, const BlockActs& a, BlockGradActs& g, const AttnBatch& batch,
                     const BlockContext& ctx);
struct WeightGrads {
  const BlockParams& d;
  Write write;
};
void block_bwd_weight(const BlockActs& a, const BlockGradActs& g, int64_t rows, const WeightGrads& grads,
                      const BlockContext& ctx);

// Scratch that the ops of a block need at most, for up to `rows` rows in `n_seq` sequences.
int64_t block_workspace_bytes(int64_t rows, int64_t n_seq, const BlockShape& s, const Exec& exec);
// The same for its forward over pages alone, with weights packed like `like` (its format and group).
int64_t paged_block_workspace_bytes(int64_t rows, const PackedLinear& like, const BlockShape& s, const Exec& exec);

}  // namespace rw
