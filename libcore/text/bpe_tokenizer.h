// A tokenizer from the parts of a tokenizer.json: added tokens, normalizer, pre-tokenizer, merges.
#pragma once
#include <memory>
#include <string>

#include "libcore/text/tokenizer.h"
#include "libcore/text/tokenizer_json.h"

namespace rw {

// `json` is the file the parts were read from; `where` its name, for messages.
std::unique_ptr<Tokenizer> make_bpe_tokenizer(TokenizerParts parts, std::string json, const std::string& where);

}  // namespace rw
