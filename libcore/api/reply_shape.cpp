#include "libcore/api/reply_shape.h"

#include "libcore/api/json_text.h"

namespace rw {

std::string reply_head(const ReplyShape& shape, bool stream) {
  std::string out = "{\"id\":";
  append_json_string(out, shape.id);
  out += ",\"object\":\"";
  out += shape.chat ? (stream ? "chat.completion.chunk" : "chat.completion") : "text_completion";
  out += "\",\"created\":";
  append_json_int(out, shape.created);
  out += ",\"model\":";
  append_json_string(out, shape.model);
  out += ",\"system_fingerprint\":";
  append_json_string(out, shape.fingerprint);
  return out;
}

void append_usage(std::string& out, const ReplyUsage& usage) {
  out += "{\"prompt_tokens\":";
  append_json_int(out, usage.prompt_tokens);
  out += ",\"completion_tokens\":";
  append_json_int(out, usage.completion_tokens);
  out += ",\"total_tokens\":";
  append_json_int(out, usage.prompt_tokens + usage.completion_tokens);
  out += ",\"prompt_tokens_details\":{\"cached_tokens\":";
  append_json_int(out, usage.cached_tokens);
  out += "}}";
}

}  // namespace rw
