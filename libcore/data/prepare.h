// Text -> token file: what `dtrain prepare` does.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "libcore/base/fields.h"

namespace rw {

struct PrepareSpec {
  std::vector<std::string> input;  // text, .jsonl, "-"
  std::string output;
  std::string tokenizer;              // "bytes" or a path; or
  int64_t train_bpe = 0;              // > 0: learn a byte-level BPE of that many tokens
  int64_t train_bpe_bytes = 1 << 30;  // from at most so much of the text, taken evenly; 0: all
  std::string format = "auto";
  std::string field = "text";
  std::string document = "file";
  std::string special_tokens = "match";
  int64_t threads = 0;            // 0: one per core
  int64_t piece_bytes = 4 << 20;  // not a flag: see TextInput
  int stdin_descriptor = 0;       // not a flag
};
FieldList fields(PrepareSpec& spec);

struct PrepareProgress {
  const char* phase;  // "reading", "counting words", "learning merges", "encoding", "writing"
  int64_t bytes_done = 0;
  int64_t bytes_total = -1;  // -1: unknown
  int64_t tokens = 0;
};

struct PrepareReport {
  std::string output;
  int64_t documents = 0;
  int64_t bytes = 0;   // of text
  int64_t tokens = 0;  // with those that begin and end documents
  double bytes_per_token = 0;
  int64_t vocab_size = 0;
  std::string tokenizer;       // identity
  std::string tokenizer_file;  // written beside the output by train_bpe; else empty
  std::string fingerprint;
  double seconds = 0;
};
FieldList fields(PrepareReport& report);

// "corpus.h5" -> "corpus.tokenizer.json".
std::string trained_tokenizer_path(const std::string& output);

// Writes the token file (and the tokenizer it learned); nothing appears, or is replaced, unless all went well. A
// document is what the tokenizer's template puts before a text, the text, what it puts after it, and the end-of-text id
// where there is one. Calls `progress` often, from the calling thread. Error{usage} for flags that do not go together,
// Error{input} for input (file and line), Error{runtime} for a full disk.
PrepareReport prepare(const PrepareSpec& spec, const std::function<void(const PrepareProgress&)>& progress);

}  // namespace rw
