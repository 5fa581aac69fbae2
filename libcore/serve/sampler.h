// From logits to tokens, over a vocabulary whose columns may be shared among tensor-parallel ranks: each rank reduces
// its own columns to a few candidates and sums, these are gathered, and all ranks draw the same id. A draw's random
// number depends on the request's seed and the token's position alone, so that neighbours in a batch change nothing.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "libcore/comm/comm.h"
#include "libcore/serve/device_logits.h"
#include "libcore/serve/sampling.h"
#include "libcore/spec/tensor_parallel.h"

namespace rw {

// How often ids occur in a sequence: what penalties look at. Kept up to date by whoever keeps the sequence.
struct TokenCounts {
  std::unordered_map<int32_t, int32_t> prompt, output;
};

struct SampleRow {
  float* logits;  // (V of this rank); scratch afterwards. With DeviceLogits: one of their rows
  const SamplingParams* params;
  const TokenCounts* counts;  // null when no penalty is asked for
  int64_t position;           // index in its sequence (prompt included) of the token to be drawn
  int64_t n_output;           // tokens drawn before
};

// Rules apply in vLLM's documented order: log-probabilities are taken of the model's own distribution; then logit_bias,
// min_tokens (its ends cannot be drawn), repetition, frequency and presence penalty; greedy takes the largest here;
// temperature; min_p; top_k; top_p of what these left. Among equal logits lower ids come first, everywhere.
class Sampler {
 public:
  // comm: the ranks that share the vocabulary, all of which call sample with the same rows; it outlives this. Where
  // logits lie on a device, `device` (of as many rows as are ever asked for) finds there what of a row decides. Rows
  // whose rules or bounds need more come over whole; either way the ids are the same, up to the rounding of sums.
  Sampler(int64_t vocab, VocabRange mine, Comm& comm, int threads, std::unique_ptr<DeviceLogits> device = nullptr);
  ~Sampler();
  // out (rows). Greedy takes the lowest id among equals. Error{runtime} when a row's logits are not finite (-inf is a
  // mask), or all are masked; the same on all ranks, naming the row's position. The result of a row depends on nothing
  // but the row; with other numbers of ranks a draw is the same up to the rounding of sums.
  void sample(std::span<const SampleRow> rows, Sampled* out);
  // Log-probabilities of known ids: out[i] has id target[i], its logprob, and top_logprobs likeliest ids. logits (n, V
  // of this rank) is scratch afterwards.
  void score(float* logits, std::span<const int32_t> target, int64_t top_logprobs, Sampled* out);

 private:
  struct Work;
  void run(std::span<Work> works);
  void ask_device(std::span<Work> works);
  SampleAsk ask_of(const Work& w) const;
  void fetch(Work& w);
  void place(Work& w, int64_t slot);
  void summarise(Work& w, std::byte* message) const;
  void head_message(Work& w, std::byte* message) const;
  void decide(Work& w, std::span<const std::byte* const> messages) const;

  int64_t vocab_;
  VocabRange mine_;
  Comm& comm_;
  int threads_;
  std::unique_ptr<DeviceLogits> device_;  // null: logits are in the host's memory
  std::vector<Work> works_;               // reused; one per row
  std::vector<std::byte> message_, gathered_;
};

}  // namespace rw
