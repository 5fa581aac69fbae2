#include "libcore/data/token_header.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "libcore/base/check.h"
#include "libcore/base/error.h"
#include "libcore/base/hash.h"

namespace rw {
namespace {

constexpr std::string_view kMark = "RWTOKENS ";
constexpr int64_t kDigestedFrom = 26;  // mark, 16 digits, newline
constexpr std::string_view kHdf5Signature = "\x89HDF\r\n\x1a\n";
constexpr const char* kAdvice = "make the file anew with `dtrain prepare`";

std::string printable(std::string_view bytes) {
  std::string out;
  for (const char c : bytes)
    if (c >= 0x20 && c < 0x7f) out += c;
    else out += fmt::format("\\x{:02x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
  return out;
}

void check_signature(std::string_view head, const std::string& where) {
  if (head.substr(0, kMark.size()) == kMark) return;
  if (head.substr(0, kHdf5Signature.size()) == kHdf5Signature)
    fail(ErrorKind::input,
         "{}: an HDF5 file without a token file's header (expected \"{}\" before the HDF5 signature); {}", where, kMark,
         kAdvice);
  fail(ErrorKind::input, "{}: not a token file: expected it to begin with \"{}\", found \"{}\"; {}", where, kMark,
       printable(head.substr(0, kMark.size())), kAdvice);
}

void check_range(int64_t value, int64_t low, int64_t high, const char* key, const std::string& where) {
  if (value < low || value > high)
    fail(ErrorKind::input, "{}: {}: expected {} to {}, found {}; {}", where, key, low, high, value, kAdvice);
}

struct Extent {
  const char* key;
  int64_t at, count, width;
};

void check_extent(const Extent& e, int64_t file_bytes, const std::string& where) {
  check_range(e.at, kTokenHeaderBytes, file_bytes, e.key, where);
  if (e.at % e.width != 0)
    fail(ErrorKind::input, "{}: {}: expected a multiple of {}, found {}", where, e.key, e.width, e.at);
  if (e.count > (file_bytes - e.at) / e.width)
    fail(ErrorKind::input, "{}: truncated: {} = {} with {} items of {} bytes do not fit into the file's {} bytes; {}",
         where, e.key, e.at, e.count, e.width, file_bytes, kAdvice);
}

void check_hex(const std::string& value, size_t digits, const char* key, const std::string& where) {
  const bool hex =
      std::all_of(value.begin(), value.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
  if (value.size() != digits || !hex)
    fail(ErrorKind::input, "{}: {}: expected {} hex digits, found \"{}\"", where, key, digits, printable(value));
}

void check_facts(const TokenFacts& f, int64_t file_bytes, const std::string& where) {
  if (f.token_type != "u16" && f.token_type != "i32")
    fail(ErrorKind::input, "{}: token_type: expected u16 or i32, found \"{}\"", where, printable(f.token_type));
  check_range(f.vocab_size, 1, f.token_type == "u16" ? 65536 : INT32_MAX, "vocab_size", where);
  if (f.n_tokens == 0) fail(ErrorKind::input, "{}: n_tokens: expected at least 1, found an empty corpus", where);
  check_range(f.n_tokens, 1, INT64_MAX / 8, "n_tokens", where);
  check_range(f.n_documents, 1, INT64_MAX / 8 - 1, "n_documents", where);
  check_range(f.n_bytes, 0, INT64_MAX, "n_bytes", where);
  check_range(f.max_token, 0, f.vocab_size - 1, "max_token", where);
  check_range(f.tokenizer_json_bytes, 0, INT64_MAX, "tokenizer_json_bytes", where);
  check_hex(f.tokenizer_digest, 16, "tokenizer_digest", where);
  check_hex(f.fingerprint, 32, "fingerprint", where);
  check_extent({"tokens_at", f.tokens_at, f.n_tokens, token_width(f)}, file_bytes, where);
  check_extent({"document_offsets_at", f.document_offsets_at, f.n_documents + 1, 8}, file_bytes, where);
  if (f.tokenizer_json_bytes > 0)
    check_extent({"tokenizer_json_at", f.tokenizer_json_at, f.tokenizer_json_bytes, 1}, file_bytes, where);
}

}  // namespace

FieldList fields(TokenFacts& f) {
  return {{"format_version", &f.format_version, "version of this format"},
          {"vocab_size", &f.vocab_size, "the tokenizer's largest id + 1"},
          {"max_token", &f.max_token, "largest id present"},
          {"n_tokens", &f.n_tokens, "tokens"},
          {"n_documents", &f.n_documents, "documents"},
          {"n_bytes", &f.n_bytes, "bytes of text"},
          {"token_type", &f.token_type, "u16 or i32"},
          {"tokenizer", &f.tokenizer, "identity of the tokenizer"},
          {"tokenizer_digest", &f.tokenizer_digest, "digest of tokenizer_json"},
          {"fingerprint", &f.fingerprint, "digests of tokens and document offsets"},
          {"tokens_at", &f.tokens_at, "byte offset of the tokens"},
          {"document_offsets_at", &f.document_offsets_at, "byte offset of the document offsets"},
          {"tokenizer_json_at", &f.tokenizer_json_at, "byte offset of the tokenizer's JSON"},
          {"tokenizer_json_bytes", &f.tokenizer_json_bytes, "its size in bytes"}};
}

std::string encode_header(const TokenFacts& facts) {
  TokenFacts copy = facts;
  std::string body = fields_json(fields(copy)).dump() + "\n";
  CHECK(static_cast<int64_t>(body.size()) <= kTokenHeaderBytes - kDigestedFrom, "header of %zu bytes", body.size());
  body.resize(static_cast<size_t>(kTokenHeaderBytes - kDigestedFrom), '\0');
  return std::string(kMark) + hex64(hash64(body)) + "\n" + body;
}

TokenFacts decode_header(std::string_view head, int64_t file_bytes, const std::string& where) {
  check_signature(head, where);
  if (static_cast<int64_t>(head.size()) < kTokenHeaderBytes)
    fail(ErrorKind::input, "{}: truncated: expected at least {} bytes, found {}; {}", where, kTokenHeaderBytes,
         head.size(), kAdvice);
  const std::string_view body = head.substr(kDigestedFrom, kTokenHeaderBytes - kDigestedFrom);
  const std::string expected(head.substr(kMark.size(), 16)), found = hex64(hash64(body));
  if (expected != found)
    fail(ErrorKind::input, "{}: damaged header: expected digest {}, found {}; {}", where, printable(expected), found,
         kAdvice);

  const std::string place = where + ": header";
  const Json json = parse_json(body.substr(0, std::min(body.find('\0'), body.size())), place);
  if (!json.is_object()) fail(ErrorKind::input, "{}: expected a JSON object", place);
  TokenFacts facts;
  facts.format_version = json_int(json, "format_version", place);
  if (facts.format_version != kTokenFormatVersion)
    fail(ErrorKind::input, "{}: format_version: expected {}, found {}; {}", place, kTokenFormatVersion,
         facts.format_version, kAdvice);
  for (const Field& field : fields(facts)) {
    if (auto* number = std::get_if<int64_t*>(&field.value)) **number = json_int(json, field.name.c_str(), place);
    if (auto* text = std::get_if<std::string*>(&field.value)) **text = json_string(json, field.name.c_str(), place);
  }
  check_facts(facts, file_bytes, place);
  return facts;
}

}  // namespace rw
