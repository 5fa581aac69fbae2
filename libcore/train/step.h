// One optimizer step over one global batch, on one rank of any layout: the pipeline's actions over all micro-batches,
// gradients reduced meanwhile, clip, AdamW. On a meta mesh, op table and arena it runs without computing anything: the
// dry run.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "libcore/comm/mesh.h"
#include "libcore/comm/watch.h"
#include "libcore/device/arena.h"
#include "libcore/telemetry/categories.h"
#include "libcore/train/grad_norm.h"
#include "libcore/train/grad_sync.h"
#include "libcore/train/host_tensors.h"
#include "libcore/train/optimizer.h"
#include "libcore/train/pipeline.h"
#include "libcore/train/step_trace.h"
#include "libcore/train/weight_store.h"

namespace rw {

// Logits of this many rows are held at once: enough for the products to run at full speed, small enough to stay cheap.
constexpr int64_t kHeadRows = 1024;

struct StepSettings {
  ModelSpec spec;
  Layout layout;
  AdamSettings adam;
  double clip_norm;
};

// The mesh that a layout asks for.
MeshShape mesh_shape(const Layout& layout, const ModelSpec& model, int64_t ranks_per_node);
// What of the model a rank holds.
ModelPart part_of(const Layout& layout, const MeshPlace& place);

// Fills this rank's samples of a step: ids (n, seq_len) and targets (n, seq_len; negative = ignored), the i-th being
// global sample first + i. Returns a digest that adds up over samples.
using ReadSamples = std::function<uint64_t(int64_t first, int64_t n, int32_t* ids, int32_t* targets)>;

struct StepInputs {
  int64_t first_sample;
  double lr;
  double loss_scale = 1.0;  // the loss is multiplied by it before the backward, gradients divided by it after
  bool stop_asked = false;  // this rank's wish to stop
  // Asked before the update, on all ranks alike: false leaves the weights as they are.
  std::function<bool(double loss, double grad_norm)> allow = [](double, double) { return true; };
  // Called on each rank right before its weights change.
  std::function<void()> before_update = [] {};
  std::array<int64_t, 2> votes{};  // added up over the ranks, whatever they mean
  StepTrace* trace = nullptr;      // draws the step: a device is then waited for after each phase and action
};

struct StepResult {
  double loss;  // mean over the global batch's valid tokens
  double grad_norm;
  int64_t valid_tokens;  // global
  uint64_t fingerprint;  // of the global batch's tokens
  bool finite;           // loss and gradient; no update otherwise, on all ranks alike
  bool updated;
  bool stop;  // some rank was asked to stop
  std::array<int64_t, 2> votes;
};

class TrainStep {
 public:
  // All memory of training is taken here. Collective over the mesh. What it does is written to the record that the mesh
  // is watched with.
  TrainStep(const StepSettings& settings, const Exec& exec, Mesh& mesh, const std::shared_ptr<CommRecord>& record,
            Arena& arena);

  const ParamLayout& layout() const { return layout_; }
  const Layout& parallel() const { return settings_.layout; }
  const Shards& shards() const { return shards_; }
  Mesh& mesh() { return mesh_; }
  WeightStore& weights() { return weights_; }
  Optimizer& optimizer() { return optimizer_; }
  const GradSync& grads() const { return grads_; }
  const Pipeline& pipeline() const { return pipeline_; }
  const HostTensors& host() const { return host_; }

  // Runs a step on global samples [first_sample, first_sample + global_batch).
  StepResult run(const StepInputs& inputs, const ReadSamples& read, StepClock& clock);
  // Forward and backward alone, as run() does them: afterwards grads() holds the gradient times loss_scale.
  StepResult forward_backward(const StepInputs& inputs, const ReadSamples& read, StepClock& clock);
  // Sum of the loss over valid targets of n samples (at most micro_batch; in the host's memory), no gradient: on the
  // last stage, 0 elsewhere. Collective over the pipeline.
  double evaluate(const int32_t* ids, const int32_t* targets, int64_t n);
  // This rank's share of sums over the whole batch that are the same on all ranks of a pipeline and a tensor group: 1
  // on one rank of each data-parallel index, 0 on the others.
  bool speaks_for_its_samples() const { return mesh_.place.tp == 0 && mesh_.place.pp == 0; }

 private:
  AttnBatch batch_of(int64_t samples) const;
  void upload(const Mirrored<int32_t>& array, int64_t n) const;
  void wait() const;
  void enter(const char* phase, StepTrace* trace) const;
  void charge(StepClock& clock, double exposed_before, double waited) const;

  StepSettings settings_;
  Exec exec_;
  Mesh& mesh_;
  std::shared_ptr<CommRecord> record_;
  ParamLayout layout_;
  Shards shards_;
  TensorParallel tp_;
  WeightStore weights_;
  Optimizer optimizer_;
  GradSync grads_;
  GradNorm norm_;
  Stage stage_;
  Pipeline pipeline_;
  HostTensors host_;
  int64_t local_samples_;
  Mirrored<int32_t> ids_, targets_;     // (local_samples, seq_len)
  Mirrored<int32_t> pos_, cu_seqlens_;  // of a full micro-batch
};

}  // namespace rw
