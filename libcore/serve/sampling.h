// How a token is chosen from logits: what a request may ask for, and what is told about a choice.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

namespace rw {

struct SamplingParams {
  double temperature = 1.0;  // 0: greedy
  int64_t top_k = 0;         // 0: all
  double top_p = 1.0;
  double min_p = 0.0;               // drops ids below min_p times the likeliest's probability
  double repetition_penalty = 1.0;  // Keskar et al. 2019, over prompt and output: z / p where z > 0, z * p elsewhere
  double presence_penalty = 0.0;    // z - p for ids in the output
  double frequency_penalty = 0.0;   // z - p * count for ids in the output
  std::vector<std::pair<int32_t, float>> logit_bias = {};  // added to the logit; ids in the vocabulary, each once
  uint64_t seed = 0;
  int64_t min_tokens = 0;          // until so many are there the ids of `ends` are not drawn
  std::vector<int32_t> ends = {};  // ids that end the text
  int64_t top_logprobs = -1;       // of the raw distribution; 0: the chosen one's alone; -1: none

  bool greedy() const { return temperature <= 0; }
  bool looks_at_counts() const { return repetition_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0; }
  bool operator==(const SamplingParams&) const = default;
};

struct TokenLogprob {
  int32_t id;
  float logprob;  // natural, of the model's own distribution (before temperature, penalties, bias)
  bool operator==(const TokenLogprob&) const = default;
};

struct Sampled {
  int32_t id = -1;
  float logprob = 0;                   // of id; when asked for
  std::vector<TokenLogprob> top = {};  // falling, ties by rising id; top_logprobs of them
  bool operator==(const Sampled&) const = default;
};

}  // namespace rw
