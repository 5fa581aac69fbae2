#include "libcore/data/token_file.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "libcore/base/check.h"
#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/hash.h"
#include "libcore/data/token_header.h"

namespace rw {

static_assert(std::endian::native == std::endian::little, "token files are little-endian and are mapped as they are");

struct TokenFile::Impl {
  std::filesystem::path path;
  MappedFile map;
  TokenFacts facts;
  const uint16_t* narrow = nullptr;  // (n_tokens); one of the two is set
  const int32_t* wide = nullptr;     // (n_tokens)
  const int64_t* offsets = nullptr;  // (n_documents + 1)
  std::string tokenizer_json;

  explicit Impl(const std::filesystem::path& file) : path(file), map(file) {
    const std::string where = file.string();
    const char* bytes = reinterpret_cast<const char*>(map.data());
    const std::string_view head(bytes, static_cast<size_t>(std::min(map.size(), kTokenHeaderBytes)));
    facts = decode_header(head, map.size(), where);
    const std::byte* tokens = map.data() + facts.tokens_at;
    if (facts.token_type == "u16") narrow = reinterpret_cast<const uint16_t*>(tokens);
    else wide = reinterpret_cast<const int32_t*>(tokens);
    offsets = reinterpret_cast<const int64_t*>(map.data() + facts.document_offsets_at);
    check_offsets(where);
    tokenizer_json.assign(bytes + facts.tokenizer_json_at, static_cast<size_t>(facts.tokenizer_json_bytes));
    check_digest("tokenizer_json", facts.tokenizer_digest, hash64(tokenizer_json), where);
  }

  void check_digest(const char* key, const std::string& expected, uint64_t found, const std::string& where) const {
    if (expected != hex64(found))
      fail(ErrorKind::input, "{}: {}: damaged: expected digest {}, found {}; make the file anew with `dtrain prepare`",
           where, key, expected, hex64(found));
  }

  void check_offsets(const std::string& where) const {
    const int64_t n = facts.n_documents;
    if (offsets[0] != 0) fail(ErrorKind::input, "{}: document_offsets[0]: expected 0, found {}", where, offsets[0]);
    for (int64_t i = 0; i < n; ++i)
      if (offsets[i + 1] < offsets[i] || offsets[i + 1] > facts.n_tokens)
        fail(ErrorKind::input,
             "{}: document_offsets[{}]: expected {} (the offset before it) to {} (n_tokens), found {}", where, i + 1,
             offsets[i], facts.n_tokens, offsets[i + 1]);
    if (offsets[n] != facts.n_tokens)
      fail(ErrorKind::input, "{}: document_offsets[{}] (the last): expected n_tokens = {}, found {}", where, n,
           facts.n_tokens, offsets[n]);
    check_digest("document_offsets", facts.fingerprint.substr(16), hash64(offsets, (n + 1) * 8), where);
  }

  [[noreturn]] void refuse_token(int64_t first, int64_t n, const int32_t* ids) const {
    int64_t i = 0;
    while (i < n && ids[i] >= 0 && ids[i] <= facts.max_token) ++i;
    fail(ErrorKind::input, "{}: tokens[{}]: expected an id of 0 to {}, found {}: the file was damaged; make it anew",
         path.string(), first + i, facts.max_token, ids[i]);
  }
};

TokenFile::TokenFile(const std::filesystem::path& file) : impl_(std::make_unique<Impl>(file)) {}
TokenFile::TokenFile(TokenFile&&) noexcept = default;
TokenFile::~TokenFile() = default;

const std::filesystem::path& TokenFile::path() const { return impl_->path; }
int64_t TokenFile::n_tokens() const { return impl_->facts.n_tokens; }
int64_t TokenFile::n_documents() const { return impl_->facts.n_documents; }
int64_t TokenFile::vocab_size() const { return impl_->facts.vocab_size; }
int64_t TokenFile::max_token() const { return impl_->facts.max_token; }
int64_t TokenFile::n_bytes() const { return impl_->facts.n_bytes; }
const std::string& TokenFile::tokenizer_json() const { return impl_->tokenizer_json; }
const std::string& TokenFile::tokenizer_identity() const { return impl_->facts.tokenizer; }
const std::string& TokenFile::fingerprint() const { return impl_->facts.fingerprint; }

int64_t TokenFile::document_offset(int64_t document) const {
  CHECK(document >= 0 && document <= n_documents(), "document %ld of %ld", static_cast<long>(document),
        static_cast<long>(n_documents()));
  return impl_->offsets[document];
}

void TokenFile::read(int64_t first, int64_t n, int32_t* dst) const {
  CHECK(n >= 0 && first >= 0 && first <= n_tokens() - n, "tokens [%ld, +%ld) of %ld", static_cast<long>(first),
        static_cast<long>(n), static_cast<long>(n_tokens()));
  uint32_t largest = 0;  // a negative id is a huge one here
  for (int64_t i = 0; i < n; ++i) {
    const int32_t id = impl_->narrow != nullptr ? int32_t{impl_->narrow[first + i]} : impl_->wide[first + i];
    largest = std::max(largest, static_cast<uint32_t>(id));
    dst[i] = id;
  }
  if (largest > impl_->facts.max_token) impl_->refuse_token(first, n, dst);
}

bool TokenFile::verify() const {
  const TokenFacts& f = impl_->facts;
  return hex64(hash64(impl_->map.data() + f.tokens_at, f.n_tokens * token_width(f))) == f.fingerprint.substr(0, 16);
}

}  // namespace rw
