// Weights as serving wants them: packed once at the start, in the type or the few bits that the products read, without
// masters beside them.
#pragma once
#include <vector>

#include "libcore/device/arena.h"
#include "libcore/model/weight_quant.h"
#include "libcore/model/weights.h"
#include "libcore/serve/weight_stage.h"
#include "libcore/tensor/source.h"

namespace rw {

class ServingWeights final : public WeightSource {
 public:
  // Takes the memory. layout: this rank's share. The head is quantised like the blocks, embeddings, norms and biases
  // are not.
  ServingWeights(const ParamLayout& layout, const WeightQuant& quant, const Exec& exec, Arena& arena);
  // Fills it, a block at a time: source has the param table's names. device: what `exec` computes in, null on the CPU.
  void read(const TensorSource& source, const Exec& exec, DeviceMemory* device);

  void prefetch(int64_t) override {}
  const BlockWeights& acquire(int64_t layer, Pass) override { return blocks_[static_cast<size_t>(layer)]; }
  void release(int64_t) override {}
  const EmbeddingWeights& embedding() override { return embedding_; }
  const HeadWeights& head() override { return head_; }

 private:
  float* read_group(WeightStage& stage, int64_t group, float* to) const;  // to, as the base of the layout

  const ParamLayout& layout_;
  std::vector<BlockWeights> blocks_;  // biases and norms: their own memory; masters only while they are read
  EmbeddingWeights embedding_{};
  HeadWeights head_{};
  float *token_ = nullptr, *position_ = nullptr, *final_norm_ = nullptr;  // whole groups
};

}  // namespace rw
