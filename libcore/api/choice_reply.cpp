#include "libcore/api/choice_reply.h"

#include <algorithm>

#include "libcore/api/json_text.h"

namespace rw {

ChoiceReply::ChoiceReply(const ReplyShape& shape, const Spec& spec)
    : shape_(shape), spec_(spec), completion_logprobs_(*shape.tokenizer, shape.skip_special_tokens) {}

bool ChoiceReply::take(const SequenceEvent& event) {
  if (finished()) return false;
  const bool shows =
      !event.text.empty() || !event.tokens.empty() || !event.prompt.empty() || event.finish != FinishReason::none;
  if (!shows) return false;
  if (!begun_ && spec_.echo != nullptr) {
    text_ += *spec_.echo;
    if (shape_.logprobs && !spec_.prompt_ids->empty()) completion_logprobs_.add_first(spec_.prompt_ids->front());
  }
  begun_ = true;
  text_ += event.text;
  if (shape_.logprobs) {
    if (spec_.echo != nullptr)
      for (const TokenOut& t : event.prompt) completion_logprobs_.add(t);
    for (const TokenOut& t : event.tokens) {
      if (!shape_.chat) {
        completion_logprobs_.add(t);
        continue;
      }
      if (!chat_logprobs_.empty()) chat_logprobs_ += ',';
      append_chat_logprob(chat_logprobs_, t, *shape_.tokenizer);
    }
  }
  if (shape_.token_ids)
    for (const TokenOut& t : event.tokens) token_ids_.push_back(t.token.id);
  completion_tokens_ += static_cast<int64_t>(event.tokens.size());
  cached_tokens_ = std::max(cached_tokens_, event.usage.cached_tokens);
  finish_ = event.finish;
  stop_string_ = event.stop_string;
  stop_token_ = event.stop_token;
  return true;
}

std::string ChoiceReply::logprobs() {
  std::string out;
  if (!shape_.logprobs) return out;
  if (shape_.chat) {
    out = "{\"content\":[" + chat_logprobs_ + "],\"refusal\":null}";
    chat_logprobs_.clear();
  } else {
    completion_logprobs_.take(out);
  }
  return out;
}

std::string ChoiceReply::stop_reason() const {
  std::string out;
  if (finish_ != FinishReason::stop) return out;
  if (!stop_string_.empty()) {
    append_json_string(out, stop_string_);
    return out;
  }
  // The model's own end of a text is told by null, ids that the request named by themselves.
  const auto& named = *spec_.stop_token_ids;
  if (std::find(named.begin(), named.end(), stop_token_) != named.end()) append_json_int(out, stop_token_);
  return out;
}

std::string ChoiceReply::chunk(const SseChunks& chunks, const ReplyUsage* usage, std::string_view timings) {
  const std::string logprobs_json = logprobs(), stop = stop_reason();
  std::string out = chunks.choice({.index = spec_.index,
                                   .first = !sent_,
                                   .text = text_,
                                   .logprobs = logprobs_json,
                                   .token_ids = shape_.token_ids ? &token_ids_ : nullptr,
                                   .prompt_ids = shape_.token_ids && !sent_ ? spec_.prompt_ids : nullptr,
                                   .finish_reason = finished() ? finish_reason_name(finish_) : "",
                                   .stop_reason = stop,
                                   .usage = usage,
                                   .timings = timings});
  sent_ = true;
  text_.clear();
  token_ids_.clear();
  return out;
}

void ChoiceReply::append_whole(std::string& out) {
  out += "{\"index\":";
  append_json_int(out, spec_.index);
  if (shape_.chat) {
    out += ",\"message\":{\"role\":\"assistant\",\"content\":";
    append_json_string(out, text_);
    out += ",\"refusal\":null}";
  } else {
    out += ",\"text\":";
    append_json_string(out, text_);
  }
  const std::string logprobs_json = logprobs(), stop = stop_reason();
  out += ",\"logprobs\":";
  out += logprobs_json.empty() ? "null" : logprobs_json;
  out += ",\"finish_reason\":";
  append_json_string(out, finish_reason_name(finish_));
  out += ",\"stop_reason\":";
  out += stop.empty() ? "null" : stop;
  if (shape_.token_ids) {
    out += ",\"token_ids\":";
    append_json_ids(out, token_ids_);
    if (!shape_.chat) {
      out += ",\"prompt_token_ids\":";
      append_json_ids(out, *spec_.prompt_ids);
    }
  }
  out += '}';
}

}  // namespace rw
