#include "libcore/bench/load/request_body.h"

#include <nlohmann/json.hpp>

#include "libcore/base/error.h"

namespace rw {
namespace {

void put_prompt(Json& body, const PlannedPrompt& p, bool chat) {
  if (chat && !p.ids.empty())
    fail(ErrorKind::usage,
         "--endpoint chat: expected prompts of text or messages, found token ids; --prompt-form text");
  if (!chat && !p.messages.empty())
    fail(ErrorKind::usage, "--endpoint completions: expected prompts, found messages; --endpoint chat");
  if (!p.messages.empty()) body["messages"] = Json::parse(p.messages);
  else if (chat) body["messages"] = Json::array({{{"role", "user"}, {"content", p.text}}});
  else if (!p.ids.empty()) body["prompt"] = p.ids;
  else body["prompt"] = p.text;
}

}  // namespace

const char* request_path(const BodyOptions& o) { return o.chat ? "/v1/chat/completions" : "/v1/completions"; }

std::string request_body(const PlannedPrompt& p, const BodyOptions& o) {
  Json body = {{"model", o.model}};
  put_prompt(body, p, o.chat);
  body["max_tokens"] = p.max_tokens;
  body["temperature"] = o.temperature;
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  if (!o.plain) {
    body["stream_options"]["continuous_usage_stats"] = true;
    if (o.exact_length) {
      body["ignore_eos"] = true;
      body["min_tokens"] = p.max_tokens;
    }
  }
  if (o.ours && !o.plain) {
    body["return_token_ids"] = true;
    body["timings"] = true;
    if (!o.cached) body["cache_prompt"] = false;
  }
  body.merge_patch(Json::parse(o.extra));
  return body.dump();
}

}  // namespace rw
