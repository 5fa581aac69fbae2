// Weights are leased: a block asks its source for them and gives them back. Resident weights are all there is without
// ZeRO-3; sharded and offloaded sources stand behind the same calls.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "libcore/device/arena.h"
#include "libcore/model/linear.h"
#include "libcore/model/param_layout.h"

namespace rw {

struct BlockWeights {
  const float *attn_norm_w, *attn_norm_b, *mlp_norm_w, *mlp_norm_b;  // (C), b null without LayerNorm
  PackedLinear qkv, out, up, down;
  std::array<PackedLinear*, 4> linears() { return {&qkv, &out, &up, &down}; }
};

struct EmbeddingWeights {
  const void* token;      // (V, C) of token_t
  const float* position;  // (max_position, C) or null
  VocabRange vocab;       // the rows of the vocabulary that V stands for
  DType token_t = DType::f32;
};

struct HeadWeights {
  const float *norm_w, *norm_b;  // (C), b null without LayerNorm
  PackedLinear head;             // (V, C)
  VocabRange vocab;
};

// What a block's weights are wanted for; recomputed blocks run both products in their backward.
enum class Pass : uint8_t { forward, backward, backward_recomputed };

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // Layers are local. A prefetched layer is the next one acquired, or it is acquired never.
  virtual void prefetch(int64_t layer) = 0;
  virtual const BlockWeights& acquire(int64_t layer, Pass pass) = 0;
  virtual void release(int64_t layer) = 0;
  virtual const EmbeddingWeights& embedding() = 0;
  virtual const HeadWeights& head() = 0;
};

enum class WeightUse { inference, training };

// Views of the masters at base, with nothing packed yet. Biases that are added after a sum over tensor-parallel ranks
// are the first rank's to add.
BlockWeights block_weights(const ParamLayout& layout, const float* base, int64_t local_layer);
EmbeddingWeights embedding_weights(const ParamLayout& layout, const float* base);
HeadWeights head_weights(const ParamLayout& layout, const float* base);
// Memory for a weight's packed forms: fwd, and bwd in training.
void take_packed(PackedLinear& w, WeightUse use, const Exec& exec, Arena& arena);

// All weights in memory: f32 masters (at `masters`, kept by the caller) and their packed forms.
class ResidentWeights final : public WeightSource {
 public:
  ResidentWeights(const ParamLayout& layout, float* masters, WeightUse use, const Exec& exec, Arena& arena);
  void prefetch(int64_t) override {}
  const BlockWeights& acquire(int64_t layer, Pass) override { return blocks_[static_cast<size_t>(layer)]; }
  void release(int64_t) override {}
  const EmbeddingWeights& embedding() override { return embedding_; }
  const HeadWeights& head() override { return head_; }
  // Makes the packed forms from the masters: after loading and after each optimizer step.
  void refresh(const Exec& exec);
  void refresh_block(int64_t layer, const Exec& exec);
  void refresh_head(const Exec& exec);

 private:
  std::vector<BlockWeights> blocks_;
  EmbeddingWeights embedding_{};
  HeadWeights head_{};
};

}  // namespace rw
