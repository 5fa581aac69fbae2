// One optimizer step over one global batch: micro-batches forward and backward, gradients reduced meanwhile, clip,
// AdamW.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "libcore/comm/comm.h"
#include "libcore/device/arena.h"
#include "libcore/model/decoder.h"
#include "libcore/telemetry/categories.h"
#include "libcore/train/grad_sync.h"
#include "libcore/train/optimizer.h"

namespace rw {

struct StepSettings {
  ModelSpec spec;
  int64_t seq_len, micro_batch, global_batch;  // samples; global_batch = micro_batch * ranks * accumulation
  AdamSettings adam;
  double clip_norm;
};

// Fills this rank's samples of a step: ids (n, seq_len) and targets (n, seq_len; negative = ignored), the i-th being
// global sample first + i. Returns a digest that adds up over samples.
using ReadSamples = std::function<uint64_t(int64_t first, int64_t n, int32_t* ids, int32_t* targets)>;

struct StepResult {
  double loss;  // mean over the global batch's valid tokens
  double grad_norm;
  int64_t valid_tokens;  // global
  uint64_t fingerprint;  // of the global batch's tokens
  bool skipped;          // loss or gradient not finite: no update, on all ranks alike
  bool stop;             // some rank was asked to stop
};

class TrainStep {
 public:
  // All memory of training is taken here. `masters` lies in the arena.
  TrainStep(const StepSettings& settings, const Exec& exec, Comm& dp, Arena& arena);

  ParamLayout& layout() { return layout_; }
  float* params() { return params_; }
  Optimizer& optimizer() { return optimizer_; }
  // After params() changed from outside (initial values, a checkpoint).
  void refresh_weights() { weights_.refresh(exec_); }

  // Runs a step on global samples [first_sample, first_sample + global_batch). stop_asked is this rank's wish to stop.
  StepResult run(int64_t first_sample, double lr, const ReadSamples& read, bool stop_asked, StepClock& clock);
  // Sum of the loss over valid targets of n samples (at most micro_batch), no gradient.
  double evaluate(const int32_t* ids, const int32_t* targets, int64_t n);

 private:
  AttnBatch batch_of(int64_t samples) const;

  StepSettings settings_;
  Exec exec_;
  Comm& dp_;
  ParamLayout layout_;
  float* params_;
  ResidentWeights weights_;
  Decoder decoder_;
  Optimizer optimizer_;
  DataParallelSink sink_;
  int64_t local_samples_;
  int32_t *ids_, *targets_;                // (local_samples, seq_len)
  std::vector<int32_t> pos_, cu_seqlens_;  // of a full micro-batch
};

}  // namespace rw
