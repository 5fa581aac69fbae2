// tokenizer.json, the Hugging Face library's file: reading it into plain parts, and writing the byte-level BPEs made
// here.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "libcore/text/added_tokens.h"
#include "libcore/text/bpe_model.h"
#include "libcore/text/normalizer.h"
#include "libcore/text/pre_tokenizer.h"
#include "libcore/text/tokenizer.h"

namespace rw {

struct TokenizerParts {
  BpeSpec model;
  std::vector<NormalizerStep> normalizer;
  std::vector<SplitStep> pre_tokenizer;
  std::vector<AddedToken> added;  // in the file's order, with the file's ids (-1: none)
  TextTemplate text_template;
};

// Error{input} naming `where`, the key, what was expected and found.
TokenizerParts read_tokenizer_json(std::string_view json, const std::string& where);

// The file of a byte-level BPE without normalizer and with <|endoftext|> as its one special token, which gets the id
// tokens.size(). Tokens (by id) and merges (by rank) are in the file's spelling.
std::string write_tokenizer_json(const std::vector<std::string>& tokens,
                                 const std::vector<std::pair<std::string, std::string>>& merges);

// The file of byte_tokenizer(): no merges, ids equal to the bytes.
std::string byte_tokenizer_json();

inline constexpr std::string_view kEndOfText = "<|endoftext|>";

}  // namespace rw
