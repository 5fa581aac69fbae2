// One pipeline stage of a decoder in training: its chunks of layers, with activations for as many micro-batches as the
// schedule holds at a time; embedding on the first, head and loss on the last. One rank alone is the stage that is
// both. It computes; who sends what where, and when, is the step's business.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "libcore/model/ends.h"
#include "libcore/schedule/pipeline.h"
#include "libcore/spec/layout.h"

namespace rw {

struct StagePlan {
  const ParamLayout* layout;           // outlives the stage
  std::vector<Layout::Layers> chunks;  // local layers of each chunk
  std::vector<Live> live;              // by chunk
  bool split_backward = false;         // weight gradients come as actions of their own
  Recompute recompute = Recompute::none;
  int64_t recompute_layers = 0;  // the stage's first N layers
  int64_t max_rows, max_seqs;    // of a micro-batch
  int64_t max_position;          // rotary table size
  int64_t head_rows;             // rows of logits held at once
  int64_t kept_losses = 1;       // micro-batches that head_backward() sees before take_loss() is asked
};

class Stage {
 public:
  // Takes activations and workspace from the arena; exec's workspace is set by this class. `between_blocks` is called
  // between layers, where started communication can be moved on.
  Stage(const StagePlan& plan, const Exec& exec, const TensorParallel& tp, Arena& arena,
        std::function<void()> between_blocks);

  // A chunk's activations of one micro-batch lie in its slot micro_batch % live.activations, until its backward is
  // done.
  struct At {
    int64_t chunk, micro_batch;
  };
  int64_t slots(int64_t chunk) const { return static_cast<int64_t>(chunks_[static_cast<size_t>(chunk)].slots.size()); }
  int64_t stream_bytes(int64_t rows) const;  // of a message: this rank's rows of the residual stream
  void* input(At at);                        // (Tl, C) what the chunk starts from: received, or written by embed()
  void* output(At at);                       // (Tl, C) its result; after that was sent, where its gradient arrives
  void* d_input(At at);  // (Tl, C) the gradient of its input, after backward; null on the first chunk of the model

  struct Batch {
    const int32_t *ids, *target;  // (T), where ops read them; negative targets are ignored
    const AttnBatch& attn;
  };
  void embed(At at, const Batch& batch, WeightSource& weights);  // first chunk of the model
  void forward(At at, const Batch& batch, WeightSource& weights);
  // Sum of the cross-entropy of output(at), on the last chunk of the model; no gradient.
  double loss(At at, const Batch& batch, WeightSource& weights);

  struct Sinks {
    WeightSource& weights;
    GradSink& grads;
  };
  // The head's loss and gradients (last chunk of the model), of d_scale * the sum. Before that chunk's backward.
  void head_backward(At at, const Batch& batch, float d_scale, const Sinks& to);
  // Waits; the sum of the losses that head_backward() left since the last call. 0 without a head.
  double take_loss();
  // Through the chunk's layers from output(at) (or the head) to d_input(at); the first chunk of the model ends with the
  // embedding. Weight gradients at once, or, with split_backward, in backward_weight (recomputed layers: at once).
  void backward(At at, const Batch& batch, const Sinks& to);
  void backward_weight(At at, const Batch& batch, const Sinks& to);

 private:
  struct Slot {
    void *input = nullptr, *output = nullptr, *d_input = nullptr;
    std::vector<BlockActs> layers;
  };
  struct WeightSlot {  // what a weight half reads, by layer of the chunk
    void* d_out = nullptr;
    std::vector<BlockGradActs> layers;
  };
  struct Chunk {
    Layout::Layers layers;
    std::vector<Slot> slots;
    std::vector<WeightSlot> weight_slots;
  };
  class Taker;

  Chunk& chunk(At at) { return chunks_[static_cast<size_t>(at.chunk)]; }
  Slot& slot(At at) { return chunk(at).slots[static_cast<size_t>(at.micro_batch % slots(at.chunk))]; }
  WeightSlot& weight_slot(At at);
  bool first_of_model(int64_t chunk) const { return plan_.layout->part().embedding && chunk == 0; }
  bool last_of_model(int64_t chunk) const {
    return plan_.layout->part().head && chunk + 1 == static_cast<int64_t>(chunks_.size());
  }
  Recompute recompute_of(int64_t local_layer) const;
  BlockActs take_acts(Taker& take, int64_t local_layer, void* x, const BlockActs& shared) const;
  BlockContext context() const { return {.shape = shape_, .rope = rope_.get(), .tp = tp_, .exec = exec_}; }
  void scope(int64_t local_layer, const char* pass) const;
  void layer_backward(At at, int64_t layer, BlockGradActs& g, const Batch& batch, const Sinks& to);
  void layer_weights(const BlockActs& a, int64_t layer, const BlockGradActs& g, const Batch& batch, const Sinks& to);

  StagePlan plan_;
  BlockShape shape_;
  Exec exec_;
  const TensorParallel& tp_;
  std::function<void()> between_blocks_;
  std::unique_ptr<RopeTable> rope_;
  std::unique_ptr<Head> head_;
  std::vector<Chunk> chunks_;
  BlockGradActs grad_acts_{};               // shared by all layers whose weight half follows at once
  void* d_stream_[2] = {nullptr, nullptr};  // (Tl, C): the residual gradient, in turn
};

}  // namespace rw
