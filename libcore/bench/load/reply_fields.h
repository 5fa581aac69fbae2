// What a load generator needs of an OpenAI-style reply or chunk of one, whichever server wrote it.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace rw {

struct ReplyFields {
  int64_t choices = -1;    // how many; -1: no such key
  int64_t with_text = 0;   // of them bring text, reasoning or a tool call
  int64_t token_ids = -1;  // in all choices; -1: not told
  int64_t most_index = 0;  // of a choice
  bool is_odd = false;     // a text, an index or a reason of another type
  std::string text;        // of choice 0
  std::string finish_reason;
  bool is_error = false;
  std::string error;                                                       // its message
  int64_t prompt_tokens = -1, completion_tokens = -1, cached_tokens = -1;  // -1: not told
  double queue_ms = -1, prefill_ms = -1, decode_ms = -1, ttft_ms = -1, total_ms = -1;
};
enum class ReplyText : uint8_t { keep, drop };
// False: `json` is no JSON object, or a choice's text, index or reason is of another type (null counts as not told, and
// so does any other field of another type than expected).
bool read_reply_fields(std::string_view json, ReplyText text, ReplyFields& fields);

// What the body of an HTTP error says: OpenAI's, llama.cpp's, TGI's and FastAPI's forms, else its first line.
std::string reply_error_text(std::string_view body);

}  // namespace rw
