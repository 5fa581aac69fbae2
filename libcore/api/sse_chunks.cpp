#include "libcore/api/sse_chunks.h"

#include "libcore/api/json_text.h"

namespace rw {
namespace {

void append_quoted_or_null(std::string& out, std::string_view plain) {
  if (plain.empty()) {
    out += "null";
    return;
  }
  out += '"';
  out += plain;
  out += '"';
}

std::string_view or_null(std::string_view json) { return json.empty() ? "null" : json; }

}  // namespace

SseChunks::SseChunks(const ReplyShape& shape)
    : chat_(shape.chat), include_usage_(shape.include_usage), head_("data: " + reply_head(shape, /*stream=*/true)) {}

std::string SseChunks::choice(const ChoiceChunk& c) const {
  std::string out;
  out.reserve(head_.size() + c.text.size() + c.logprobs.size() + 192);
  out += head_;
  if (chat_ && c.prompt_ids != nullptr) {
    out += ",\"prompt_token_ids\":";
    append_json_ids(out, *c.prompt_ids);
  }
  out += ",\"choices\":[{\"index\":";
  append_json_int(out, c.index);
  if (!chat_) {
    out += ",\"text\":";
    append_json_string(out, c.text);
  } else if (c.first) {
    out += ",\"delta\":{\"role\":\"assistant\",\"content\":";
    append_json_string(out, c.text);
    out += '}';
  } else {
    out += ",\"delta\":{\"content\":";
    append_json_string(out, c.text);
    out += '}';
  }
  out += ",\"logprobs\":";
  out += or_null(c.logprobs);
  out += ",\"finish_reason\":";
  append_quoted_or_null(out, c.finish_reason);
  if (!c.finish_reason.empty()) {
    out += ",\"stop_reason\":";
    out += or_null(c.stop_reason);
  }
  if (c.token_ids != nullptr) {
    out += ",\"token_ids\":";
    append_json_ids(out, *c.token_ids);
  }
  if (!chat_ && c.prompt_ids != nullptr) {
    out += ",\"prompt_token_ids\":";
    append_json_ids(out, *c.prompt_ids);
  }
  out += "}]";
  if (c.usage != nullptr) {
    out += ",\"usage\":";
    append_usage(out, *c.usage);
  } else if (include_usage_) {
    out += ",\"usage\":null";
  }
  if (!c.timings.empty()) {
    out += ",\"timings\":";
    out += c.timings;
  }
  out += "}\n\n";
  return out;
}

std::string SseChunks::usage(const ReplyUsage& usage, std::string_view timings) const {
  std::string out = head_ + ",\"choices\":[],\"usage\":";
  append_usage(out, usage);
  if (!timings.empty()) {
    out += ",\"timings\":";
    out += timings;
  }
  return out + "}\n\n";
}

std::string SseChunks::error(const Refusal& refusal) { return "data: " + error_body(refusal) + "\n\n"; }

}  // namespace rw
