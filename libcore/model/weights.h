// Weights are leased: a block asks its source for them and gives them back. Resident weights are all there is for one
// rank; sharded and offloaded sources stand behind the same three calls.
#pragma once
#include <cstdint>
#include <vector>

#include "libcore/device/arena.h"
#include "libcore/model/linear.h"
#include "libcore/model/param_layout.h"

namespace rw {

struct BlockWeights {
  const float *attn_norm_w, *attn_norm_b, *mlp_norm_w, *mlp_norm_b;  // (C), b null without LayerNorm
  PackedLinear qkv, out, up, down;
};

struct EndWeights {
  const float *token_embedding, *position_embedding;
  const float *final_norm_w, *final_norm_b;
  PackedLinear head;
};

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  virtual void prefetch(int64_t layer) = 0;
  virtual const BlockWeights& acquire(int64_t layer) = 0;
  virtual void release(int64_t layer) = 0;
  virtual const EndWeights& ends() = 0;
};

enum class WeightUse { inference, training };

// All weights in memory: f32 masters (at `masters`, kept by the caller) and their packed forms.
class ResidentWeights final : public WeightSource {
 public:
  ResidentWeights(const ParamLayout& layout, float* masters, WeightUse use, const Exec& exec, Arena& arena);
  void prefetch(int64_t) override {}
  const BlockWeights& acquire(int64_t layer) override { return blocks_[static_cast<size_t>(layer)]; }
  void release(int64_t) override {}
  const EndWeights& ends() override { return ends_; }
  // Makes the packed forms from the masters: after loading and after each optimizer step.
  void refresh(const Exec& exec);

 private:
  std::vector<BlockWeights> blocks_;
  EndWeights ends_;
};

}  // namespace rw
