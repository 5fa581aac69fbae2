// The header of a token file: everything a reader must know, in the 4,096 bytes before the HDF5 signature (HDF5 calls
// such a place a user block), guarded by a digest.
//
// Why not read the HDF5 structures: token files travel between people, and HDF5 1.10's parser is known to crash on
// damaged or hostile metadata. A reader checks this header and the extents it names and never hands a byte to HDF5. The
// file is still a plain HDF5 file for every other tool: the same facts stand there as attributes, made from the same
// field list.
//
//   bytes 0..25      "RWTOKENS " + 16 hex digits (XXH3 of bytes 26..4095) + "\n"
//   bytes 26..4095   one JSON object, then zeros
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "libcore/base/fields.h"

namespace rw {

inline constexpr int64_t kTokenHeaderBytes = 4096;
inline constexpr int64_t kTokenFormatVersion = 1;

struct TokenFacts {
  int64_t format_version = kTokenFormatVersion;
  int64_t vocab_size = 0;
  int64_t max_token = 0;  // largest id present
  int64_t n_tokens = 0, n_documents = 0;
  int64_t n_bytes = 0;           // of the text
  std::string token_type;        // "u16" or "i32", little-endian
  std::string tokenizer;         // its identity
  std::string tokenizer_digest;  // 16 hex digits, of tokenizer_json
  std::string fingerprint;       // 32 hex digits: digest of the tokens, digest of the document offsets
  int64_t tokens_at = 0;         // where the datasets' bytes lie in the file
  int64_t document_offsets_at = 0;
  int64_t tokenizer_json_at = 0, tokenizer_json_bytes = 0;
};
FieldList fields(TokenFacts& facts);  // JSON keys and HDF5 attributes

inline int64_t token_width(const TokenFacts& facts) { return facts.token_type == "u16" ? 2 : 4; }

// kTokenHeaderBytes bytes.
std::string encode_header(const TokenFacts& facts);
// Checks signature, digest, version, every fact's range, and that every extent lies inside `file_bytes`; `head` is the
// beginning of the file (its whole if it is shorter than a header). Error{input} names file, key, expected and found.
TokenFacts decode_header(std::string_view head, int64_t file_bytes, const std::string& where);

}  // namespace rw
