#include "libcore/serve/serving_weights.h"

#include <algorithm>
#include <array>

#include "libcore/model/block_shape.h"

namespace rw {
namespace {

// What of a block stays f32 beside the packed weights: pointer and number of floats.
struct Kept {
  const float** at;
  int64_t n;
};
std::array<Kept, 8> kept_of(BlockWeights& w, int64_t c) {
  return {Kept{&w.attn_norm_w, c},      Kept{&w.attn_norm_b, c},         Kept{&w.mlp_norm_w, c},
          Kept{&w.mlp_norm_b, c},       Kept{&w.qkv.bias, w.qkv.n_out},  Kept{&w.out.bias, w.out.n_out},
          Kept{&w.up.bias, w.up.n_out}, Kept{&w.down.bias, w.down.n_out}};
}

}  // namespace

ServingWeights::ServingWeights(const ParamLayout& layout, const WeightQuant& quant, const Exec& exec, Arena& arena)
    : layout_(layout) {
  const int threads = exec.stream.threads;
  const int64_t c = layout.spec().width;
  const auto floats = [&](int64_t n) { return arena.take_n<float>(n, MemoryOwner::weights, threads); };
  const auto group = [&](GroupKind kind) -> float* {
    const int64_t g = layout.find_group(kind);
    return g < 0 ? nullptr : floats(layout.group(g).range.n);
  };
  token_ = group(GroupKind::token_embedding);
  position_ = group(GroupKind::position_embedding);
  final_norm_ = group(GroupKind::final_norm);
  const auto pack = [&](PackedLinear& w) {
    w.format = quant.format;
    w.group = quant.group;
    take_packed(w, WeightUse::inference, exec, arena);
  };
  // Addresses count from a base that is not there: only which of them are null is looked at.
  float* const nowhere = reinterpret_cast<float*>(uintptr_t{1} << 40);
  for (int64_t l = 0; l < layout.spec().layers; ++l) {
    BlockWeights w = block_weights(layout, nowhere, l);
    for (const Kept& k : kept_of(w, c))
      if (*k.at != nullptr) *k.at = floats(k.n);
    for (PackedLinear* linear : w.linears()) {
      linear->master = nullptr;
      pack(*linear);
    }
    blocks_.push_back(w);
  }
  const auto base_of = [&](float* data, GroupKind kind) {
    const int64_t g = layout.find_group(kind);
    return data == nullptr ? nullptr : data - layout.group(g).range.offset;
  };
  embedding_ = embedding_weights(layout, base_of(token_, GroupKind::token_embedding));
  if (position_ != nullptr)
    embedding_.position = embedding_weights(layout, base_of(position_, GroupKind::position_embedding)).position;
  head_ = head_weights(layout, base_of(final_norm_, GroupKind::final_norm));
  head_.head.master = nullptr;
  pack(head_.head);
}

float* ServingWeights::read_group(WeightStage& stage, int64_t group, float* to) const {
  const ParamGroup& g = layout_.group(group);
  float* base = to - g.range.offset;
  for (size_t i = g.first_param; i < g.first_param + g.n_params; ++i) {
    const LocalParam& p = layout_.params()[i];
    stage.read(p.name, p.box, base + p.slice.offset);
  }
  return base;
}

void ServingWeights::read(const TensorSource& source, const Exec& exec, DeviceMemory* device) {
  const int64_t c = layout_.spec().width;
  WeightStage stage(source, exec, device);
  const auto group = [&](GroupKind kind, float* to) {
    return to == nullptr ? nullptr : read_group(stage, layout_.find_group(kind), to);
  };
  float* token_base = group(GroupKind::token_embedding, token_);
  group(GroupKind::position_embedding, position_);
  group(GroupKind::final_norm, final_norm_);

  int64_t most = 0;
  for (const ParamGroup& g : layout_.groups())
    if (g.kind == GroupKind::block || g.kind == GroupKind::head) most = std::max(most, g.range.n);
  float* const masters_of_one = stage.room(most);
  const auto pack = [&](PackedLinear& w, const float* master) {
    w.master = master;
    pack_fwd(w, exec);
    w.master = nullptr;
  };
  for (int64_t l = 0; l < layout_.spec().layers; ++l) {
    BlockWeights& w = blocks_[static_cast<size_t>(l)];
    const float* base = read_group(stage, layout_.find_group(GroupKind::block, l), masters_of_one);
    BlockWeights read = block_weights(layout_, base, l);
    const auto from = kept_of(read, c), to = kept_of(w, c);
    for (size_t i = 0; i < to.size(); ++i)
      if (*to[i].at != nullptr)
        exec.ops.cast(
            {.y = const_cast<float*>(*to[i].at), .x = *from[i].at, .n = to[i].n, .yt = DType::f32, .xt = DType::f32},
            exec.stream);
    const auto masters = read.linears(), packed = w.linears();
    for (size_t i = 0; i < packed.size(); ++i) pack(*packed[i], masters[i]->master);
  }
  const float* head_base = layout_.spec().tied_head ? token_base : group(GroupKind::head, masters_of_one);
  pack(head_.head, head_weights(layout_, head_base).head.master);
}

}  // namespace rw
