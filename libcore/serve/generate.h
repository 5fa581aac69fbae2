// Generation for one prompt at a time, by the scheduler and the model runner that serve: prefill in chunks, then token
// by token over paged keys and values.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "libcore/serve/model_runner.h"

namespace rw {

struct GeneratorSpec {
  ModelSpec model;
  DType precision;  // f32 or bf16
  int threads;
  int64_t max_tokens;  // longest prompt + continuation
  int64_t prefill_chunk = 256;
  int64_t page_tokens = 16;
  Device* device = nullptr;  // null: this CPU; outlives the generator
};

struct GenerateRequest {
  std::vector<int32_t> prompt;  // at least one id
  int64_t max_new_tokens = 0;
  SamplingParams sampling;
  bool stop_at_end = true;  // end when an end-of-text id is drawn (ModelSpec::ends_text, stop_id); it is not passed on
  int32_t stop_id = -1;     // one more such id: the tokenizer's
};

struct GenerateReport {
  int64_t prompt_tokens, new_tokens;
  double prefill_s, decode_s;
  bool stopped;  // by an end-of-text id
};

class Generator {
 public:
  // Weights under the param table's names.
  Generator(const GeneratorSpec& spec, const TensorSource& weights);
  // Calls on_token for each new id; it returns false to stop. Error{input} when the prompt is longer than max_tokens;
  // the continuation ends where the longest sequence does.
  GenerateReport generate(const GenerateRequest& request, const std::function<bool(int32_t)>& on_token);

 private:
  GeneratorSpec spec_;
  std::unique_ptr<Comm> self_;
  std::unique_ptr<ModelRunner> runner_;
};

}  // namespace rw
