#include "libcore/plan/memory/stage_memory.h"

#include "kernels/op_log.h"
#include "libcore/comm/watch.h"
#include "libcore/model/stage.h"
#include "libcore/train/step.h"

namespace rw {
namespace {

constexpr Live kOneSlot{.activations = 1, .weight_gradients = 1};

// A stage of at most one chunk with up to two layers.
struct Small {
  bool embedding = false, head = false;
  int64_t chunks = 0, layers = 0;
  bool recompute = false;
  bool split = false;
};

class Measure {
 public:
  explicit Measure(const StagePartsQuery& query) : query_(query), comm_(make_meta_comm(0, static_cast<int>(query.tp))) {
    log_.backend = &query.backend;
    Arena arena(ArenaKind::count);
    tp_ = std::make_unique<TensorParallel>(
        TensorParallel::Plan{
            .sequence_parallel = query.sp, .max_rows = rows(), .width = query.model.width, .training = true},
        exec(), *comm_, arena);
    tensor_parallel_ = static_cast<double>(arena.total_bytes());
  }

  double tensor_parallel() const { return tensor_parallel_; }
  double activations(const Small& small) const { return take(small, MemoryOwner::activations); }
  double workspace(const Small& small) const { return take(small, MemoryOwner::workspace); }

 private:
  int64_t rows() const { return query_.micro_batch * query_.seq_len; }
  Exec exec() const { return {.ops = meta_ops(), .stream = {.threads = query_.threads, .log = &log_}, .t = query_.t}; }

  double take(const Small& small, MemoryOwner owner) const {
    ModelSpec model = query_.model;
    model.layers = 2;
    const ModelPart part{
        .tp = {.size = query_.tp, .rank = 0}, .layers = {0, 1}, .embedding = small.embedding, .head = small.head};
    const ParamLayout params(model, part);
    Arena arena(ArenaKind::count);
    const Stage stage({.layout = &params,
                       .chunks = std::vector<Layout::Layers>(static_cast<size_t>(small.chunks), {0, small.layers}),
                       .live = std::vector<Live>(static_cast<size_t>(small.chunks), kOneSlot),
                       .split_backward = small.split,
                       .recompute = query_.recompute,
                       .recompute_layers = small.recompute ? 2 : 0,
                       .max_rows = rows(),
                       .max_seqs = query_.micro_batch,
                       .max_position = query_.seq_len,
                       .head_rows = kHeadRows},
                      exec(), *tp_, arena, [] {});
    return static_cast<double>(arena.bytes(owner));
  }

  const StagePartsQuery& query_;
  mutable OpLog log_;
  std::unique_ptr<Comm> comm_;
  std::unique_ptr<TensorParallel> tp_;
  double tensor_parallel_ = 0;
};

}  // namespace

StageParts stage_parts(const StagePartsQuery& query) {
  const Measure measure(query);
  const auto bytes = [&](const Small& small) { return measure.activations(small); };
  const Small slot{.chunks = 1}, first_slot{.embedding = true, .chunks = 1};
  const Small one{.chunks = 1, .layers = 1}, two{.chunks = 1, .layers = 2};
  const Small split{.chunks = 1, .split = true}, split_one{.chunks = 1, .layers = 1, .split = true};

  StageParts p{.tensor_parallel = measure.tensor_parallel(),
               .workspace = measure.workspace({}),
               .workspace_head = measure.workspace({.head = true})};
  p.base = bytes({});
  p.head = bytes({.head = true}) - p.base;
  p.slot = bytes(first_slot) - p.base;
  p.d_input = bytes(slot) - bytes(first_slot);
  p.layer = bytes(one) - bytes(slot);
  p.input = bytes(two) - bytes(one) - p.layer;
  p.weight_slot = bytes(split) - bytes(slot);
  p.weight_layer = bytes(split_one) - bytes(one) - p.weight_slot;
  if (query.recompute == Recompute::none) return p;

  p.recompute = bytes({.recompute = true}) - p.base;
  const double again = bytes({.chunks = 1, .layers = 1, .recompute = true});
  p.recomputed_layer = again - bytes({.chunks = 1, .recompute = true});
  p.weight_recomputed_layer =
      bytes({.chunks = 1, .layers = 1, .recompute = true, .split = true}) - again - p.weight_slot;
  return p;
}

}  // namespace rw
