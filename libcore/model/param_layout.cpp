#include "libcore/model/param_layout.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "libcore/base/check.h"
#include "libcore/base/rng.h"

namespace rw {
namespace {

constexpr int64_t kGroupAlign = 16;

GroupKind kind_of(ParamRole role) {
  switch (role) {
    case ParamRole::token_embedding: return GroupKind::token_embedding;
    case ParamRole::position_embedding: return GroupKind::position_embedding;
    case ParamRole::final_norm_w:
    case ParamRole::final_norm_b: return GroupKind::final_norm;
    case ParamRole::head_w: return GroupKind::head;
    default: return GroupKind::block;
  }
}

// The parameters of `roles` that exist follow each other without a gap.
void check_adjacent(const ParamLayout& layout, int64_t layer, std::initializer_list<ParamRole> roles) {
  int64_t expected = -1;
  for (const ParamRole role : roles)
    for (const LocalParam& p : layout.params()) {
      if (p.role != role || p.layer != layer) continue;
      CHECK(expected < 0 || p.slice.offset == expected, "fused parameters of block %lld do not lie next to each other",
            static_cast<long long>(layer));
      expected = p.slice.offset + p.slice.n;
    }
}

}  // namespace

ModelPart whole_model(const ModelSpec& spec) {
  ModelPart part;
  for (int64_t l = 0; l < spec.layers; ++l) part.layers.push_back(l);
  return part;
}

ParamLayout::ParamLayout(const ModelSpec& spec) : ParamLayout(spec, whole_model(spec)) {}

ParamLayout::ParamLayout(const ModelSpec& spec, const ModelPart& part) : spec_(spec), part_(part) {
  std::vector<int64_t> local(static_cast<size_t>(spec.layers), -1);
  for (size_t i = 0; i < part.layers.size(); ++i) local[static_cast<size_t>(part.layers[i])] = static_cast<int64_t>(i);
  int64_t offset = 0;
  for (Param& p : param_table(spec)) {
    const GroupKind kind = kind_of(p.role);
    const int64_t layer = kind == GroupKind::block ? local[static_cast<size_t>(p.layer)] : -1;
    const bool tied_copy = kind == GroupKind::token_embedding && !part.embedding && tied_here();
    const bool here = kind == GroupKind::block ? layer >= 0 : p.layer < 0 ? part.embedding || tied_copy : part.head;
    if (!here) continue;
    if (groups_.empty() || groups_.back().kind != kind || groups_.back().layer != layer) {
      offset = (offset + kGroupAlign - 1) / kGroupAlign * kGroupAlign;
      groups_.push_back(
          {.kind = kind, .layer = layer, .first_param = params_.size(), .n_params = 0, .range = {offset, 0}});
    }
    LocalParam mine{std::move(p)};
    mine.box = tp_box(mine, spec, part.tp);
    mine.slice = {offset, mine.box.size()};
    mine.group = n_groups() - 1;
    mine.owned = tp_owner(mine, spec, part.tp) && !tied_copy;
    offset += mine.slice.n;
    groups_.back().range.n = offset - groups_.back().range.offset;
    ++groups_.back().n_params;
    params_.push_back(std::move(mine));
  }
  total_ = (offset + kGroupAlign - 1) / kGroupAlign * kGroupAlign;
}

int64_t ParamLayout::find_group(GroupKind kind, int64_t layer) const {
  for (size_t g = 0; g < groups_.size(); ++g)
    if (groups_[g].kind == kind && groups_[g].layer == layer) return static_cast<int64_t>(g);
  return -1;
}

float* ParamLayout::find(float* base, ParamRole role, int64_t layer) const {
  for (const LocalParam& p : params_)
    if (p.role == role && p.layer == layer) return base + p.slice.offset;
  return nullptr;
}

Box rows_box(const LocalParam& p, RowSpan rows) {
  Box box = p.box;
  box.offset[0] += rows.first;
  box.extent[0] = rows.rows;
  return box;
}

void init_rows(const LocalParam& p, RowSpan rows, float* dst, uint64_t seed) {
  const Box box = rows_box(p, rows);
  switch (p.init) {
    case Init::normal: {
      const uint64_t key = rng_key(seed, "init/" + p.name);
      for_each_run(box, whole(p.shape), box, [&](int64_t element, int64_t at, int64_t n) {
        fill_normal(dst + at, n, static_cast<float>(p.init_std), key, static_cast<uint64_t>(element));
      });
      break;
    }
    case Init::zeros: std::fill_n(dst, box.size(), 0.0f); break;
    case Init::ones: std::fill_n(dst, box.size(), 1.0f); break;
  }
}

void init_params(const ParamLayout& layout, float* base, uint64_t seed) {
  for (const LocalParam& p : layout.params())
    init_rows(p, {.first = 0, .rows = p.box.extent[0]}, base + p.slice.offset, seed);
}

BlockParams block_params(const ParamLayout& layout, float* base, int64_t local_layer) {
  using R = ParamRole;
  const int64_t layer = layout.part().layers[static_cast<size_t>(local_layer)];
  check_adjacent(layout, layer, {R::q_w, R::k_w, R::v_w});
  check_adjacent(layout, layer, {R::q_b, R::k_b, R::v_b});
  check_adjacent(layout, layer, {R::gate_w, R::up_w});
  check_adjacent(layout, layer, {R::gate_b, R::up_b});
  const auto at = [&](R role) { return layout.find(base, role, layer); };
  const bool gated = layout.spec().gated_mlp();
  return {.attn_norm_w = at(R::attn_norm_w),
          .attn_norm_b = at(R::attn_norm_b),
          .qkv_w = at(R::q_w),
          .qkv_b = at(R::q_b),
          .out_w = at(R::out_w),
          .out_b = at(R::out_b),
          .mlp_norm_w = at(R::mlp_norm_w),
          .mlp_norm_b = at(R::mlp_norm_b),
          .up_w = at(gated ? R::gate_w : R::up_w),
          .up_b = at(gated ? R::gate_b : R::up_b),
          .down_w = at(R::down_w),
          .down_b = at(R::down_b)};
}

EndParams end_params(const ParamLayout& layout, float* base) {
  using R = ParamRole;
  const int64_t last = layout.spec().layers;
  float* embedding = layout.find(base, R::token_embedding, -1);
  return {.token_embedding = embedding,
          .position_embedding = layout.find(base, R::position_embedding, -1),
          .final_norm_w = layout.find(base, R::final_norm_w, last),
          .final_norm_b = layout.find(base, R::final_norm_b, last),
          .head_w = layout.spec().tied_head ? embedding : layout.find(base, R::head_w, last)};
}

}  // namespace rw
