#include "libcore/api/generation_request.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "libcore/api/api_error.h"
#include "libcore/api/request_ids.h"

namespace rw {
namespace {

constexpr size_t kMaxStops = 64, kMaxStopBytes = 1024, kMaxStopIds = 1024, kMaxSaltBytes = 1024, kMaxTextBytes = 1024;
constexpr int64_t kMaxPriority = int64_t{1} << 40;
constexpr double kMaxTimeout = 1e6;

void read_logit_bias(RequestFields& fields, int64_t vocab_size, SamplingParams& sampling) {
  const Json* bias = fields.find("logit_bias");
  if (bias == nullptr) return;
  if (!bias->is_object()) refuse("logit_bias", "expected an object of token ids, found {}", found(*bias));
  for (const auto& item : bias->items()) {
    const std::string& key = item.key();
    int32_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0 || id >= vocab_size)
      refuse("logit_bias", "expected token ids from 0 to {} as keys, found {}", vocab_size - 1, found(Json(key)));
    const Json& value = item.value();
    const double v = value.is_number() ? value.get<double>() : 1e9;
    if (!(v >= -100 && v <= 100))
      refuse(fmt::format("logit_bias.{}", id), "expected a number from -100 to 100, found {}", found(value));
    const auto same = [&](const auto& entry) { return entry.first == id; };
    if (std::any_of(sampling.logit_bias.begin(), sampling.logit_bias.end(), same))
      refuse("logit_bias", "token id {} is there twice", id);  // "7" and "07"
    sampling.logit_bias.emplace_back(id, static_cast<float>(v));
  }
}

void read_sampling(RequestFields& fields, int64_t vocab_size, SamplingParams& s) {
  s.temperature = fields.number("temperature", 1, 0, 2);
  // Nothing but the likeliest token is what a share of 0 comes to.
  s.top_p = std::max(1e-9, fields.number("top_p", 1, 0, 1));
  s.top_k = fields.integer("top_k", 0, -1, INT32_MAX);
  if (s.top_k < 0 || s.top_k >= vocab_size) s.top_k = 0;
  s.min_p = fields.number("min_p", 0, 0, 1);
  s.repetition_penalty = fields.number("repetition_penalty", 1, 1e-3, 1e3);
  s.presence_penalty = fields.number("presence_penalty", 0, -2, 2);
  s.frequency_penalty = fields.number("frequency_penalty", 0, -2, 2);
  read_logit_bias(fields, vocab_size, s);
}

// What would change the answer but is not there is refused: silence would be a wrong answer.
void refuse_unsupported(RequestFields& fields) {
  if (const Json* format = fields.find("response_format"); format != nullptr) {
    RequestFields inside(*format, "response_format.");
    const std::string type = inside.text("type", "text", kMaxTextBytes);
    if (type != "text") refuse("response_format", "type \"{}\" is not supported; expected \"text\"", type);
  }
  fields.only("use_beam_search", "false", "");
  fields.only("structured_outputs", "null", "");
  for (const char* name : {"guided_json", "guided_regex", "guided_choice", "guided_grammar", "grammar", "json_schema"})
    fields.only(name, "null", "");
  fields.only("allowed_token_ids", "null", "logit_bias of -100 forbids a token");
  fields.only("bad_words", "null", "logit_bias of -100 forbids a token");
  fields.only("prompt_logprobs", "null", "echo with logprobs in /v1/completions gives them");
  fields.only("logprob_token_ids", "null", "");
  fields.only("return_tokens_as_token_ids", "false", "return_token_ids is");
  fields.only("kv_transfer_params", "null", "");
  fields.only("repetition_detection", "null", "");
  fields.only("thinking_token_budget", "null", "");
  fields.only("truncation_side", "\"left\"", "");
  // Nothing of the answer depends on them.
  for (const char* name : {"user", "length_penalty", "spaces_between_special_tokens", "metadata", "store",
                           "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"})
    fields.ignore(name);
}

}  // namespace

void check_model(RequestFields& fields, const RequestLimits& limits) {
  const std::string model = fields.text("model", limits.model, kMaxTextBytes);
  if (model == limits.model) return;
  throw ApiError({.status = 404,
                  .message = fmt::format("the model {} does not exist; this server has {}", found(Json(model)),
                                         found(Json(limits.model))),
                  .param = "model",
                  .code = "model_not_found"});
}

GenerationRequest read_generation_request(RequestFields& fields, const RequestLimits& limits) {
  GenerationRequest r;
  check_model(fields, limits);
  r.n = fields.integer("n", 1, 1, limits.max_choices);
  r.max_tokens = fields.integer("max_tokens", 0, INT32_MAX);
  if (const auto newer = fields.integer("max_completion_tokens", 0, INT32_MAX)) r.max_tokens = newer;
  read_sampling(fields, limits.vocab_size, r.sampling);
  r.sampling.min_tokens = fields.integer("min_tokens", 0, 0, INT32_MAX);
  if (r.max_tokens && r.sampling.min_tokens > *r.max_tokens)
    refuse("min_tokens", "expected at most max_tokens, which is {}, found {}", *r.max_tokens, r.sampling.min_tokens);
  if (const auto seed = fields.integer("seed", INT64_MIN, INT64_MAX)) r.seed = static_cast<uint64_t>(*seed);
  r.stop = fields.texts("stop", kMaxStops, kMaxStopBytes);
  r.stop_token_ids = fields.ids("stop_token_ids", kMaxStopIds, limits.vocab_size);
  r.include_stop = fields.boolean("include_stop_str_in_output", false);
  r.ignore_eos = fields.boolean("ignore_eos", false);
  r.skip_special_tokens = fields.boolean("skip_special_tokens", true);
  if (fields.has("add_special_tokens")) r.add_special_tokens = fields.boolean("add_special_tokens", true);
  if (const auto keep = fields.integer("truncate_prompt_tokens", -1, INT32_MAX)) {
    if (*keep == 0) refuse("truncate_prompt_tokens", "expected a number of tokens to keep, or -1, found 0");
    r.truncate_prompt_tokens = *keep < 0 ? limits.max_model_len : *keep;
  }
  r.stream = fields.boolean("stream", false);
  if (const Json* options = fields.find("stream_options"); options != nullptr) {
    if (!r.stream) refuse("stream_options", "expected \"stream\": true beside it");
    RequestFields inside(*options, "stream_options.");
    r.include_usage = inside.boolean("include_usage", false);
    r.continuous_usage = inside.boolean("continuous_usage_stats", false);
    inside.ignore("include_obfuscation");
    r.unknown = inside.unknown();
  }
  r.return_token_ids = fields.boolean("return_token_ids", false);
  r.timings = fields.boolean("timings", false);
  r.priority = fields.integer("priority", 0, -kMaxPriority, kMaxPriority);
  if (fields.has("cache_salt")) {
    r.cache_salt = fields.text("cache_salt", "", kMaxSaltBytes);
    if (r.cache_salt.empty()) refuse("cache_salt", "expected 1 to {} bytes, found none", kMaxSaltBytes);
  }
  r.cache_prompt = fields.boolean("cache_prompt", true);
  r.request_id = fields.text("request_id", "", kMaxTextBytes);
  if (!r.request_id.empty() && !valid_request_id(r.request_id))
    refuse("request_id", "expected 1 to {} printable ASCII characters without spaces", kMaxRequestId);
  if (fields.has("timeout")) r.timeout_s = fields.number("timeout", 0, 1e-3, kMaxTimeout);
  refuse_unsupported(fields);
  return r;
}

}  // namespace rw
