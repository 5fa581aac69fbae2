// Where the parameters that a rank holds lie in memory: one flat f32 buffer, in table order, cut into groups (token
// embedding, positions, each block, final norm, head) that are leased, packed and reduced as wholes. Weights, gradients
// and optimizer state share it.
#pragma once
#include <cstdint>
#include <vector>

#include "libcore/spec/tensor_parallel.h"

namespace rw {

struct Range {
  int64_t offset = 0, n = 0;  // in elements
};

// Which part of a model a rank holds.
struct ModelPart {
  TpPlace tp;
  std::vector<int64_t> layers;         // ascending; local layer i is the model's layer layers[i]
  bool embedding = true, head = true;  // holds the first, the last virtual stage
};
ModelPart whole_model(const ModelSpec& spec);

struct LocalParam : Param {
  Box box;      // of the parameter's shape: what this rank holds, row-major
  Range slice;  // where it lies
  int64_t group;
  bool owned;  // this rank counts and writes it; others hold copies (tensor-parallel replicas, a tied head)
  int64_t row() const { return box.extent[0] == 0 ? 0 : slice.n / box.extent[0]; }  // elements of one of its rows
};

enum class GroupKind : uint8_t { token_embedding, position_embedding, block, final_norm, head };
struct ParamGroup {
  GroupKind kind;
  int64_t layer;                 // local, of a block; -1
  size_t first_param, n_params;  // its parameters, of params()
  Range range;                   // starts are multiples of 16 elements
};

class ParamLayout {
 public:
  explicit ParamLayout(const ModelSpec& spec);  // the whole model on one rank
  ParamLayout(const ModelSpec& spec, const ModelPart& part);
  const ModelSpec& spec() const { return spec_; }
  const ModelPart& part() const { return part_; }
  const std::vector<LocalParam>& params() const { return params_; }
  Range slice(size_t param) const { return params_[param].slice; }
  const std::vector<ParamGroup>& groups() const { return groups_; }
  int64_t n_groups() const { return static_cast<int64_t>(groups_.size()); }
  const ParamGroup& group(int64_t g) const { return groups_[static_cast<size_t>(g)]; }
  // The group of this kind (and local layer); -1 when this rank has none.
  int64_t find_group(GroupKind kind, int64_t layer = -1) const;
  int64_t total() const { return total_; }
  // base + offset of the parameter of this role, null when this rank has none. layer is the model's, as in
  // Param::layer.
  float* find(float* base, ParamRole role, int64_t layer) const;
  bool tied_here() const { return spec_.tied_head && part_.head; }

 private:
  ModelSpec spec_;
  ModelPart part_;
  std::vector<LocalParam> params_;
  std::vector<ParamGroup> groups_;
  int64_t total_ = 0;
};

// Rows [first, first + rows) of a parameter's box: its initial values by (seed, name, element index), the same in every
// layout.
struct RowSpan {
  int64_t first, rows;
};
void init_rows(const LocalParam& p, RowSpan rows, float* dst, uint64_t seed);
void init_params(const ParamLayout& layout, float* base, uint64_t seed);
// The box of these rows in the parameter's shape.
Box rows_box(const LocalParam& p, RowSpan rows);

// The f32 parameters of one block (local layer), or their gradients, on this rank: H, Hkv, F are its own numbers of
// heads and ffn columns. Matrices that are read as one product lie next to each other.
struct BlockParams {
  float *attn_norm_w, *attn_norm_b;  // (C)
  float *qkv_w, *qkv_b;              // ((H+2Hkv)*D, C), ((H+2Hkv)*D)
  float *out_w, *out_b;              // (C, H*D), (C)
  float *mlp_norm_w, *mlp_norm_b;    // (C)
  float *up_w, *up_b;                // (2F, C) gate above up, or (F, C); bias alike
  float *down_w, *down_b;            // (C, F), (C)
};
BlockParams block_params(const ParamLayout& layout, float* base, int64_t local_layer);

// Null where this rank has none. V: its rows of the vocabulary.
struct EndParams {
  float *token_embedding, *position_embedding;  // (V,C), (max_position,C)
  float *final_norm_w, *final_norm_b;           // (C)
  float* head_w;                                // (V,C); the token embedding when tied
};
EndParams end_params(const ParamLayout& layout, float* base);

}  // namespace rw
