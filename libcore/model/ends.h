// The two ends of a decoder: embedding, and final norm with head and loss, both over the vocabulary rows of a
// tensor-parallel rank (Shoeybi et al. 2019): no rank ever holds full logits.
#pragma once
#include <cstdint>
#include <vector>

#include "libcore/model/block.h"

namespace rw {

// x (Tl, C) <- embeddings of the batch's ids, learned positions added.
struct Embed {
  const int32_t* ids;  // (T), where ops read them, as all of the batch
  const AttnBatch& batch;
  void* x;
};
void embed_fwd(const EmbeddingWeights& w, const Embed& e, const BlockContext& ctx);
// Gradients of the embeddings from d_x (Tl, C).
struct EmbedBackward {
  const int32_t* ids;
  const AttnBatch& batch;
  const void* d_x;
};
void embed_bwd(const EmbeddingWeights& w, const EmbedBackward& e, const ParamLayout& layout, GradSink& sink,
               const BlockContext& ctx);

// Elements from a row of a training's logits to the next: products read rows 16 bytes at a time, where they begin at
// such addresses, and a vocabulary (50257) may be odd.
int64_t logits_stride(int64_t vocab);

class Head {
 public:
  struct Plan {
    int64_t max_rows, width, vocab;  // T, C, this rank's V
    int64_t chunk_rows;              // rows of logits held at once
    bool training;                   // loss, or logits
    int64_t kept_batches = 1;        // whose losses are kept until take_loss(): the host need not wait for each
  };
  Head(const Plan& plan, NormKind norm, const Exec& exec, const TensorParallel& tp, Arena& arena);

  // x (Tl, C): the residual stream after the last block. Over all T rows the cross-entropy with target (negative:
  // ignored), kept for take_loss().
  void loss(const HeadWeights& w, const void* x, const int32_t* target, int64_t rows, const BlockContext& ctx);
  // The same, the gradient of d_scale * the sum to d_x (Tl, C), and the weights' gradients to the sink.
  struct Backward {
    const void* x;
    const int32_t* target;
    int64_t rows;
    float d_scale;
    void* d_x;
  };
  void loss_and_backward(const HeadWeights& w, const Backward& b, const ParamLayout& layout, GradSink& sink,
                         const BlockContext& ctx);
  // Waits; the sum of the losses since the last call, the same on all tensor-parallel ranks.
  double take_loss(const Exec& exec);
  // f32 logits (n, V) of chosen rows of x (T, C), without sequence parallelism.
  struct Rows {
    const void* x;
    const int32_t* chosen;  // where ops read them
    int64_t n;
  };
  void logits(const HeadWeights& w, const Rows& r, float* out, const BlockContext& ctx);

 private:
  const void* normed(const HeadWeights& w, const void* x, int64_t rows, const BlockContext& ctx);
  struct Chunk {
    const void* normed;
    const int32_t* target;
    int64_t first, n;
    float d_scale;
  };
  void chunk_loss(const HeadWeights& w, const Chunk& chunk, const BlockContext& ctx);
  void keep_losses(int64_t rows);

  Plan plan_;
  void* norm_;                                  // (Tl, C)
  float *mean_ = nullptr, *rstd_;               // (Tl)
  void *logits_ = nullptr, *picked_ = nullptr;  // (chunk_rows, V) in training, (chunk_rows, C) in inference
  int64_t logits_ld_ = 0;                       // V, rounded up
  SharedMemory parts_;                          // (tp, chunk_rows, 3)
  Mirrored<float> losses_{};                    // (kept_batches * max_rows)
  std::vector<int64_t> kept_;                   // rows of each batch whose losses lie there
  int64_t kept_rows_ = 0;
  std::vector<int64_t> cuts_;
};

}  // namespace rw
