// The bodies of the API's requests: any bytes give a request that keeps its limits, or an ApiError of 4xx whose body is
// JSON.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "libcore/api/api_error.h"
#include "libcore/api/chat_request.h"
#include "libcore/api/completion_request.h"

namespace rw {
namespace {

const RequestLimits kLimits{
    .model = "m", .vocab_size = 300, .max_model_len = 128, .max_choices = 8, .max_logprobs = 5, .chat_template = true};

void require(bool law) {
  if (!law) std::abort();
}

void check_ids(const std::vector<int32_t>& ids) {
  for (const int32_t id : ids) require(id >= 0 && id < kLimits.vocab_size);
}

void check(const GenerationRequest& r) {
  require(r.n >= 1 && r.n <= kLimits.max_choices);
  require(!r.max_tokens || *r.max_tokens >= 0);
  require(r.sampling.temperature >= 0 && r.sampling.temperature <= 2);
  require(r.sampling.top_p > 0 && r.sampling.top_p <= 1);
  require(r.sampling.top_k >= 0 && r.sampling.top_k < kLimits.vocab_size);
  require(r.sampling.min_p >= 0 && r.sampling.min_p <= 1);
  require(r.sampling.repetition_penalty > 0);
  require(r.logprobs >= -1 && r.logprobs <= kLimits.max_logprobs);
  require(r.truncate_prompt_tokens >= 0 && r.timeout_s >= 0);
  check_ids(r.stop_token_ids);
  for (const std::string& stop : r.stop) require(!stop.empty());
  for (const auto& [id, bias] : r.sampling.logit_bias) check_ids({id}), require(bias >= -100 && bias <= 100);
  require(r.stream || !(r.include_usage || r.continuous_usage));
}

template <typename Parse>
void run(const Parse& parse) {
  try {
    parse();
  } catch (const ApiError& e) {
    require(e.kind() == ErrorKind::input);
    require(e.refusal().status >= 400 && e.refusal().status < 500);
    require(!e.refusal().message.empty() && e.refusal().message.size() < 4096);
    require(Json::parse(error_body(e.refusal()))["error"].is_object());
  }
}

}  // namespace
}  // namespace rw

extern "C" void fuzz_one(const uint8_t* data, size_t size) {
  using namespace rw;
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  run([&] {
    const CompletionRequest r = parse_completion_request(body, kLimits);
    check(r.common);
    require(!r.prompts.empty());
    require(static_cast<int64_t>(r.prompts.size()) * r.common.n <= kLimits.max_choices);
    for (const Prompt& prompt : r.prompts) {
      require(prompt.is_ids ? !prompt.ids.empty() : !prompt.text.empty());
      check_ids(prompt.ids);
    }
  });
  run([&] {
    const ChatRequest r = parse_chat_request(body, kLimits);
    check(r.common);
    require(r.prompt.messages->is_array() && !r.prompt.messages->empty());
    require(r.prompt.variables->is_object());
  });
}
