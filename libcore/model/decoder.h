// A whole decoder on one rank: embedding, blocks, head; forward and backward of one micro-batch, and the forward of a
// serving step. Activations are planned once for the largest batch.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "libcore/device/arena.h"
#include "libcore/model/block.h"

namespace rw {

struct DecoderPlan {
  ModelSpec spec;
  int64_t max_rows;      // of the flat batch: micro-batch * seq-len in training, tokens of a step in serving
  int64_t max_seqs;      // sequences in the flat batch
  int64_t max_position;  // rotary table size: the longest sequence
  WeightUse use;
  int64_t head_rows;  // rows of logits held at once
};

class Decoder {
 public:
  // Takes activations and workspace from the arena; exec's workspace is set by this class.
  Decoder(const DecoderPlan& plan, const Exec& exec, Arena& arena);

  // Training forward: acts of all layers are kept. ids (rows).
  void forward(const int32_t* ids, const AttnBatch& batch, WeightSource& weights);
  // Sum over rows of the cross-entropy with `target` (negative: ignored), after forward().
  double loss(const int32_t* target, const AttnBatch& batch, WeightSource& weights);
  // The same, and the gradients of d_scale * that sum, group by group into the sink. between_blocks() is called between
  // kernels, where started communication can be moved on.
  double loss_and_backward(const int32_t* ids, const int32_t* target, float d_scale, const AttnBatch& batch,
                           WeightSource& weights, GradSink& sink, const ParamLayout& layout,
                           const std::function<void()>& between_blocks);
  // Logits of chosen rows after forward(), f32 (n, V).
  void logits(const int32_t* rows, int64_t n, float* out, WeightSource& weights);

  // Paged pages per layer for serving: called for each layer before it runs.
  using LayerPages = std::function<PagedKv(int64_t layer)>;
  void forward_paged(const int32_t* ids, const AttnBatch& batch, const LayerPages& pages, WeightSource& weights);

 private:
  void run_block(int64_t layer, const AttnBatch& batch, WeightSource& weights);
  void embed(const int32_t* ids, const AttnBatch& batch, WeightSource& weights);
  void final_norm(const AttnBatch& batch, WeightSource& weights);
  double head_rows_loss(int64_t first, int64_t n, const int32_t* target, float d_scale, WeightSource& weights);
  void head_backward(int64_t first, int64_t n, const GradPlace& place, const EndParams& grads, bool first_chunk,
                     WeightSource& weights);

  DecoderPlan plan_;
  BlockShape shape_;
  Exec exec_;
  std::unique_ptr<RopeTable> rope_;
  std::vector<BlockActs> acts_;  // (L), or one set used by all layers in inference
  BlockGradActs grad_acts_{};
  void* x0_ = nullptr;                                   // (T, C) embedding output
  void* x_final_ = nullptr;                              // (T, C) residual after the last block
  void* final_norm_ = nullptr;                           // (T, C)
  float *final_mean_ = nullptr, *final_rstd_ = nullptr;  // (T)
  void* logits_ = nullptr;                               // (head_rows, V)
  float* losses_ = nullptr;                              // (head_rows)
  void* d_stream_[2] = {nullptr, nullptr};               // (T, C): the residual gradient, in turn
  void* d_final_norm_ = nullptr;                         // (T, C)
  void* gathered_ = nullptr;                             // (head_rows, C) rows picked for logits
};

// Floating-point operations of one training step's forward and backward per token of a sequence of seq_len (3x
// forward), from the ops' own prices. Attention counted in full (T^2) or causally (T^2/2).
struct ModelFlops {
  double full, causal;
};
ModelFlops training_flops_per_token(const ModelSpec& spec, int64_t seq_len);

}  // namespace rw
