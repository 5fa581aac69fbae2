// A rank's part of the model, its keys and values, and the sequences it knows: carries out step plans. All ranks are
// given the same plans and draw the same tokens.
#pragma once
#include <map>
#include <memory>
#include <thread>
#include <unordered_map>
#include <vector>

#include "libcore/comm/comm.h"
#include "libcore/model/decoder.h"
#include "libcore/serve/kv_pages.h"
#include "libcore/serve/sampler.h"
#include "libcore/serve/serving_weights.h"
#include "libcore/serve/step_arrays.h"
#include "libcore/serve/step_runner.h"

namespace rw {

struct RunnerSpec {
  ModelSpec model;
  DType precision = DType::f32;  // f32 or bf16
  DType kv_t = DType::f32;       // f32, bf16 (as precision), or i8
  WeightQuant quant;
  int threads = 1;
  int64_t max_rows = 512, max_seqs = 64;  // tokens and sequences in a step
  int64_t max_len = 0;                    // longest sequence
  int64_t page_tokens = 16, n_pages = 0;
  bool deterministic = false;
  Device* device = nullptr;      // null: this CPU; outlives the runner
  const Ops* backend = nullptr;  // null: the device's; another's sizes count with a counting arena
  // Where the device gains by it, steps of decodes alone are recorded, for batches of 1, 2, 4, ... sequences.
  bool records_steps = true;
};

class ModelRunner final : public StepRunner {
 public:
  // Takes the memory; a counting arena prices it instead. tp outlives this.
  ModelRunner(const RunnerSpec& spec, Comm& tp, ArenaKind kind = ArenaKind::memory);
  // Reads the weights: names of the param table.
  void load(const TensorSource& weights);
  StepOutput run(const StepPlan& plan) override;
  void idle() override {}
  const Arena& arena() const { return arena_; }
  KvPagesSpec kv_spec() const;

  // f32 logits (n, V of this rank) of the last tokens of the plan's sequences that sample, before anything is drawn:
  // what run() draws from, for those who compare. On the device; of a recorded step, of all its sequences.
  const float* logits() const { return logits_; }

 private:
  struct Sequence {
    std::vector<int32_t> tokens;
    int64_t n_prompt;
    SamplingParams sampling;
    int64_t prompt_logprobs;
    TokenCounts counts;
    bool counted;  // a penalty looks at counts
    std::vector<int32_t> pages;
  };
  void take_news(const StepPlan& plan);
  void enter_thread();
  StepShape shape_of(const StepPlan& plan) const;
  bool is_recordable(const StepPlan& plan) const;
  void fill(const StepPlan& plan);
  void forward();
  void forward_recorded();
  void make_logits(int64_t n);
  void score_prompt(const SequenceRows& rows, int64_t first_row, std::vector<Sampled>& out);
  void draw(const StepPlan& plan, StepOutput& result);

  RunnerSpec spec_;
  Comm& tp_;
  Arena arena_, host_arena_;  // what of the second is taken is the host's alone
  Exec exec_;
  ParamLayout layout_;
  VocabRange vocab_;
  int64_t logit_rows_;
  std::unique_ptr<ServingWeights> weights_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<KvPages> kv_;
  StepArrays batch_;
  Mirrored<int32_t> chosen_;  // (logit_rows) rows of the batch whose logits are made
  float* logits_;             // (logit_rows, V of this rank)
  std::unique_ptr<Sampler> sampler_;
  std::map<StepShape, std::unique_ptr<RecordedOps>> recorded_;
  std::thread::id thread_;  // that the device is bound to
  std::unordered_map<SequenceId, Sequence> sequences_;
  std::vector<SampleRow> sample_rows_;
  std::vector<Sampled> sampled_;
};

}  // namespace rw
