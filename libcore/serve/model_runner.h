// A rank's part of the model, its keys and values, and the sequences it knows: carries out step plans. All ranks are
// given the same plans and draw the same tokens.
#pragma once
#include <memory>
#include <unordered_map>
#include <vector>

#include "libcore/comm/comm.h"
#include "libcore/model/decoder.h"
#include "libcore/serve/kv_pages.h"
#include "libcore/serve/sampler.h"
#include "libcore/serve/serving_weights.h"
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
  const Ops* backend = nullptr;  // null: this CPU's; another's sizes count with a counting arena
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
  // what run() draws from, for those who compare.
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
  void forward(const StepPlan& plan);
  void score_prompt(const SequenceRows& rows, int64_t first_row, std::vector<Sampled>& out);
  void draw(const StepPlan& plan, StepOutput& result);

  RunnerSpec spec_;
  Comm& tp_;
  Arena arena_;
  Exec exec_;
  ParamLayout layout_;
  std::unique_ptr<ServingWeights> weights_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<KvPages> kv_;
  Sampler sampler_;
  VocabRange vocab_;
  int64_t logit_rows_;
  float* logits_;  // (logit_rows, V of this rank)
  std::unordered_map<SequenceId, Sequence> sequences_;
  // Of the flat batch.
  std::vector<int32_t> ids_, pos_, starts_, context_, table_, chosen_;
  std::vector<int64_t> slot_;
  std::vector<SampleRow> sample_rows_;
  std::vector<Sampled> sampled_;
};

}  // namespace rw
