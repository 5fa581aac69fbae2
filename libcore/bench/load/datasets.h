// What the requests of a load ask: prompts and answer lengths, drawn or read. A pure function of the spec.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "libcore/base/json.h"

namespace rw {

// "100..2000" or "512": drawn evenly, both ends included. Error{usage} names `flag`.
struct LengthRange {
  int64_t low = 1, high = 1;
};
LengthRange parse_length_range(const std::string& text, const char* flag);

struct DatasetSpec {
  std::string kind = "random";           // random, shared-prefix, jsonl, multi-turn, trace
  int64_t n = 1;                         // requests; of jsonl and trace 0: as many as the file has
  LengthRange input, output;             // tokens
  int64_t prefix_len = 0, prefixes = 1;  // shared-prefix: request i begins with prefix i mod prefixes
  int64_t turns = 1;                     // multi-turn: requests of a conversation
  double think_s = 0;                    // multi-turn: from the end of an answer to the next request
  std::string file;                      // of jsonl and trace
  double trace_speed = 1;                // 2: the trace in half its time
  bool ids = true;                       // prompts as token ids, else as English words
  int64_t vocab = 1000;                  // ids are drawn from kFirstId to vocab - 1
  double tokens_per_word = 1.3;          // estimate for prompts of words
  uint64_t seed = 0;
  int64_t draw = 0;  // other prompts of the same lengths: a repeat must not find the last one's in the prefix cache
};
constexpr int64_t kFirstId = 10;  // below are most models' special tokens

struct PlannedPrompt {
  std::vector<int32_t> ids;  // empty: text or messages
  std::string text;
  std::string messages;      // JSON array
  int64_t input_tokens = 0;  // 0: not known (text that was read)
  int64_t max_tokens = 0;
  std::string golden;  // "": none
  int64_t after = -1;  // multi-turn: index of the request before it in the conversation
  double due_s = 0;    // trace: when; multi-turn: after the end of `after`
};

// random: nothing in common. shared-prefix: the input length counts the prefix. multi-turn: requests c * turns + t; a
// turn's prompt is the one before it, a planned answer of that turn's output length (drawn like a prompt: what the
// server really said is not known when the load is made), and an input length of new tokens. trace: as
// plan/serve/workload.h reads it; prompts agree in blocks as their hash_ids say. jsonl: {"prompt": text or ids |
// "messages": [...], "max_tokens"?, "golden"?} a line, from the top again when n is larger.
// Error{usage, input} name the flag, or file and line.
std::vector<PlannedPrompt> plan_prompts(const DatasetSpec& spec);

// Of JSON lines that came from `where`; max_tokens 0 where the line has none.
std::vector<PlannedPrompt> parse_prompt_lines(std::string_view text, const std::string& where);

}  // namespace rw
