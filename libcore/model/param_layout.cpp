#include "libcore/model/param_layout.h"

#include <algorithm>

#include "libcore/base/check.h"
#include "libcore/base/rng.h"

namespace rw {
namespace {

constexpr int64_t kGroupAlign = 16;

int64_t group_of(const Param& p) { return p.layer + 1; }

// The parameters of `roles` that exist follow each other without a gap.
void check_adjacent(const ParamLayout& layout, float* base, int64_t layer, std::initializer_list<ParamRole> roles) {
  const float* expected = nullptr;
  for (const ParamRole role : roles) {
    const float* start = layout.find(base, role, layer);
    if (start == nullptr) continue;
    CHECK(expected == nullptr || start == expected, "fused parameters of block %lld do not lie next to each other",
          static_cast<long long>(layer));
    for (size_t i = 0; i < layout.params().size(); ++i)
      if (layout.params()[i].role == role && layout.params()[i].layer == layer) expected = start + layout.slice(i).n;
  }
}

}  // namespace

ParamLayout::ParamLayout(const ModelSpec& spec) : spec_(spec), params_(param_table(spec)) {
  groups_.resize(static_cast<size_t>(spec.layers) + 2);
  int64_t offset = 0, previous = -1;
  for (const Param& p : params_) {
    const int64_t g = group_of(p);
    CHECK(g >= previous, "param table out of order at %s", p.name.c_str());
    if (g != previous) {
      offset = (offset + kGroupAlign - 1) / kGroupAlign * kGroupAlign;
      groups_[static_cast<size_t>(g)].offset = offset;
      previous = g;
    }
    const int64_t n = n_elements(p.shape);
    slices_.push_back({offset, n});
    offset += n;
    Range& group = groups_[static_cast<size_t>(g)];
    group.n = offset - group.offset;
  }
  total_ = (offset + kGroupAlign - 1) / kGroupAlign * kGroupAlign;
}

float* ParamLayout::find(float* base, ParamRole role, int64_t layer) const {
  for (size_t i = 0; i < params_.size(); ++i)
    if (params_[i].role == role && params_[i].layer == layer) return base + slices_[i].offset;
  return nullptr;
}

void init_params(const ParamLayout& layout, float* base, uint64_t seed) {
  for (size_t i = 0; i < layout.params().size(); ++i) {
    const Param& p = layout.params()[i];
    const Range slice = layout.slice(i);
    float* dst = base + slice.offset;
    switch (p.init) {
      case Init::normal:
        fill_normal(dst, slice.n, static_cast<float>(p.init_std), rng_key(seed, "init/" + p.name), 0);
        break;
      case Init::zeros: std::fill_n(dst, slice.n, 0.0f); break;
      case Init::ones: std::fill_n(dst, slice.n, 1.0f); break;
    }
  }
}

BlockParams block_params(const ParamLayout& layout, float* base, int64_t layer) {
  using R = ParamRole;
  check_adjacent(layout, base, layer, {R::q_w, R::k_w, R::v_w});
  check_adjacent(layout, base, layer, {R::q_b, R::k_b, R::v_b});
  check_adjacent(layout, base, layer, {R::gate_w, R::up_w});
  check_adjacent(layout, base, layer, {R::gate_b, R::up_b});
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
