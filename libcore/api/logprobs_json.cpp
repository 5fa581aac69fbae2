#include "libcore/api/logprobs_json.h"

#include <algorithm>
#include <string_view>

#include "libcore/api/json_text.h"
#include "libcore/text/utf8.h"

namespace rw {
namespace {

void append_entry(std::string& out, std::string_view bytes, float logprob) {
  out += "{\"token\":";
  append_json_string(out, bytes);
  out += ",\"logprob\":";
  append_json_logprob(out, logprob);
  out += ",\"bytes\":";
  append_json_bytes(out, bytes);
}

std::string token_name(std::string_view bytes) {
  if (valid_utf8(bytes)) return std::string(bytes);
  constexpr char kHex[] = "0123456789abcdef";
  std::string name = "bytes:";
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    name += "\\x";
    name += kHex[byte >> 4];
    name += kHex[byte & 15];
  }
  return name;
}

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

void comma(std::string& list) {
  if (!list.empty()) list += ',';
}

}  // namespace

void append_chat_logprob(std::string& out, const TokenOut& token, const Tokenizer& tokenizer) {
  append_entry(out, token.bytes, token.token.logprob);
  out += ",\"top_logprobs\":[";
  bool first = true;
  for (const TokenLogprob& t : token.token.top) {
    if (!first) out += ',';
    first = false;
    append_entry(out, tokenizer.token_bytes(t.id), t.logprob);
    out += '}';
  }
  out += "]}";
}

void CompletionLogprobs::add_token(int32_t id, std::string_view bytes) {
  comma(tokens_);
  append_json_string(tokens_, token_name(bytes));
  comma(offsets_);
  // A token that begins within a character lies where that character does.
  const bool within = !bytes.empty() && continues(bytes.front()) && characters_ > 0;
  append_json_int(offsets_, characters_ - (within ? 1 : 0));
  if (hide_special_ && tokenizer_->is_special(id)) return;
  characters_ += std::count_if(bytes.begin(), bytes.end(), [](char c) { return !continues(c); });
}

void CompletionLogprobs::add(const TokenOut& token) {
  add_token(token.token.id, token.bytes);
  comma(logprobs_);
  append_json_logprob(logprobs_, token.token.logprob);
  comma(top_);
  top_ += '{';
  std::vector<std::string> names;  // an object's keys are each there once; the likeliest of equal names stays
  const auto add_top = [&](std::string_view bytes, float logprob) {
    std::string name = token_name(bytes);
    if (std::find(names.begin(), names.end(), name) != names.end()) return;
    if (!names.empty()) top_ += ',';
    append_json_string(top_, name);
    top_ += ':';
    append_json_logprob(top_, logprob);
    names.push_back(std::move(name));
  };
  for (const TokenLogprob& t : token.token.top) add_top(tokenizer_->token_bytes(t.id), t.logprob);
  add_top(token.bytes, token.token.logprob);
  top_ += '}';
}

void CompletionLogprobs::add_first(int32_t id) {
  add_token(id, tokenizer_->token_bytes(id));
  comma(logprobs_);
  logprobs_ += "null";
  comma(top_);
  top_ += "null";
}

void CompletionLogprobs::take(std::string& out) {
  out += "{\"tokens\":[";
  out += tokens_;
  out += "],\"token_logprobs\":[";
  out += logprobs_;
  out += "],\"top_logprobs\":[";
  out += top_;
  out += "],\"text_offset\":[";
  out += offsets_;
  out += "]}";
  for (std::string* list : {&tokens_, &logprobs_, &top_, &offsets_}) list->clear();
}

}  // namespace rw
