// Where the parameters lie in memory: one flat f32 buffer, in table order, cut into groups (embeddings, each block, the
// final norm with the head) that are leased, packed and reduced as wholes. Weights, gradients and optimizer state share
// it.
#pragma once
#include <cstdint>
#include <vector>

#include "libcore/spec/param_table.h"

namespace rw {

struct Range {
  int64_t offset = 0, n = 0;  // in elements
};

class ParamLayout {
 public:
  explicit ParamLayout(const ModelSpec& spec);
  const ModelSpec& spec() const { return spec_; }
  const std::vector<Param>& params() const { return params_; }
  Range slice(size_t param) const { return slices_[param]; }
  // Groups: 0 embeddings, 1..L blocks, L+1 final norm and head. Starts are multiples of 16 elements.
  int64_t n_groups() const { return static_cast<int64_t>(groups_.size()); }
  Range group(int64_t g) const { return groups_[static_cast<size_t>(g)]; }
  int64_t total() const { return total_; }
  // base + offset of the parameter of this role, null when the model has none. layer as in Param::layer.
  float* find(float* base, ParamRole role, int64_t layer) const;

 private:
  ModelSpec spec_;
  std::vector<Param> params_;
  std::vector<Range> slices_, groups_;
  int64_t total_ = 0;
};

// Initial values by (seed, name, element index): the same in every layout.
void init_params(const ParamLayout& layout, float* base, uint64_t seed);

// The f32 parameters of one block, or their gradients: matrices that are read as one product lie next to each other.
struct BlockParams {
  float *attn_norm_w, *attn_norm_b;  // (C)
  float *qkv_w, *qkv_b;              // ((H+2Hkv)*D, C), ((H+2Hkv)*D)
  float *out_w, *out_b;              // (C, H*D), (C)
  float *mlp_norm_w, *mlp_norm_b;    // (C)
  float *up_w, *up_b;                // (2F, C) gate above up, or (F, C); bias alike
  float *down_w, *down_b;            // (C, F), (C)
};
BlockParams block_params(const ParamLayout& layout, float* base, int64_t layer);

struct EndParams {
  float *token_embedding, *position_embedding;  // (V,C), (max_position,C) or null
  float *final_norm_w, *final_norm_b;           // (C)
  float* head_w;                                // (V,C); the token embedding when tied
};
EndParams end_params(const ParamLayout& layout, float* base);

}  // namespace rw
