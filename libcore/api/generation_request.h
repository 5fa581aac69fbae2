// What a request for text may say, whether it is a completion or a chat: OpenAI's fields and the extensions of them
// that other servers of open models have.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "libcore/api/request_fields.h"
#include "libcore/serve/sampling.h"

namespace rw {

// What this server takes.
struct RequestLimits {
  std::string model;  // its name
  int64_t vocab_size = 0, max_model_len = 0;
  int64_t max_choices = 128, max_logprobs = 20;
  bool chat_template = false;  // requests may bring one
};

struct GenerationRequest {
  int64_t n = 1;                      // choices for each prompt
  std::optional<int64_t> max_tokens;  // new tokens at most
  SamplingParams sampling;            // without seed, ends and top_logprobs
  std::optional<uint64_t> seed;
  int64_t logprobs = -1;  // likeliest tokens told beside the chosen one; -1: no logprobs
  std::vector<std::string> stop;
  std::vector<int32_t> stop_token_ids;
  bool include_stop = false, ignore_eos = false, skip_special_tokens = true;
  std::optional<bool> add_special_tokens;
  int64_t truncate_prompt_tokens = 0;  // keep the last ones alone; 0: all, or refused
  bool stream = false, include_usage = false, continuous_usage = false;
  bool return_token_ids = false, timings = false;
  int64_t priority = 0;
  std::string cache_salt;
  bool cache_prompt = true;
  std::string request_id;
  double timeout_s = 0;  // 0: none

  std::vector<std::string> unknown = {};  // fields that nothing here reads
};

// The fields that both kinds have. ApiError: 400, or 404 for a model that is not this one. The caller reads its own
// fields from `fields` too, and fills `unknown`.
GenerationRequest read_generation_request(RequestFields& fields, const RequestLimits& limits);
// 404 unless `fields` names this model or none.
void check_model(RequestFields& fields, const RequestLimits& limits);

}  // namespace rw
