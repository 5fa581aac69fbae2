// A whole decoder for serving: the forward of a flat batch over paged keys and values, and logits. All layers share one
// set of activations.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>

#include "libcore/device/arena.h"
#include "libcore/model/ends.h"
#include "libcore/model/weight_quant.h"

namespace rw {

struct DecoderPlan {
  ModelSpec spec;
  int64_t max_rows;        // of the flat batch: tokens of a step
  int64_t max_seqs;        // sequences in the flat batch
  int64_t max_position;    // rotary table size: the longest sequence
  int64_t logit_rows;      // rows of logits asked for at once
  WeightQuant quant = {};  // of the linear layers
  Comm* tp = nullptr;      // the tensor-parallel ranks; null: this one alone
  bool paged = false;      // forward_paged() alone: less scratch
};

class Decoder {
 public:
  // Takes activations and workspace from the arena; exec's workspace is set by this class.
  Decoder(const DecoderPlan& plan, const Exec& exec, Arena& arena);

  // ids, the batch's arrays and the rows of logits lie where ops read them.
  //
  // Paged pages per layer: called for each layer before it runs.
  using LayerPages = std::function<PagedKv(int64_t layer)>;
  void forward_paged(const int32_t* ids, const AttnBatch& batch, const LayerPages& pages, WeightSource& weights);
  // Over whole sequences, without pages.
  void forward(const int32_t* ids, const AttnBatch& batch, WeightSource& weights);
  // Logits of chosen rows after a forward, f32 (n, V); V: this rank's rows of the vocabulary.
  void logits(const int32_t* rows, int64_t n, float* out, WeightSource& weights);

 private:
  void run(const int32_t* ids, const AttnBatch& batch, const LayerPages* pages, WeightSource& weights);
  BlockContext context() const { return {.shape = shape_, .rope = rope_.get(), .tp = *tp_, .exec = exec_}; }

  DecoderPlan plan_;
  BlockShape shape_;
  Exec exec_;
  std::unique_ptr<Comm> self_;
  std::unique_ptr<TensorParallel> tp_;
  std::unique_ptr<RopeTable> rope_;
  std::unique_ptr<Head> head_;
  BlockActs acts_{};
  void *x0_, *result_;  // (T, C): embedding output, residual stream after the last block
  int64_t rows_ = 0;    // of the last forward
};

}  // namespace rw
