// Generation for one prompt at a time: prefill in chunks, then token by token over paged keys and values.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "libcore/device/arena.h"
#include "libcore/model/decoder.h"
#include "libcore/serve/kv_pool.h"
#include "libcore/serve/sampler.h"
#include "libcore/tensor/source.h"

namespace rw {

struct GeneratorSpec {
  ModelSpec model;
  DType precision;  // f32 or bf16
  int threads;
  int64_t max_tokens;  // longest prompt + continuation
  int64_t prefill_chunk = 256;
  int64_t page_tokens = 16;
};

struct GenerateRequest {
  std::vector<int32_t> prompt;  // at least one id
  int64_t max_new_tokens;
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
  // Calls on_token for each new id; it returns false to stop.
  GenerateReport generate(const GenerateRequest& request, const std::function<bool(int32_t)>& on_token);
  // f32 logits (V) of the last row after feeding ids that follow what was fed before; starts over when first is true.
  const std::vector<float>& feed(const std::vector<int32_t>& ids, bool first);
  const Arena& arena() const { return arena_; }

 private:
  void start_over();
  void feed_chunk(const int32_t* ids, int64_t n);

  GeneratorSpec spec_;
  Arena arena_;
  Exec exec_;
  ParamLayout layout_;
  float* masters_;
  std::unique_ptr<ResidentWeights> weights_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<KvPool> pool_;
  Sampler sampler_;
  std::vector<int32_t> pages_;  // of the sequence, in order
  std::vector<int32_t> pos_;
  std::vector<int64_t> slot_;
  int64_t context_ = 0;        // tokens fed
  std::vector<float> logits_;  // (V)
};

}  // namespace rw
