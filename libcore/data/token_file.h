// A corpus as token ids: an HDF5 file with a contiguous `tokens` dataset (u16 or i32), `document_offsets` (i64, n_docs+1), the
// tokenizer's json, and attributes (format version, vocabulary size, fingerprint). Tokens are memory-mapped at their offset.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace rw {

class TokenFile {
 public:
  explicit TokenFile(const std::filesystem::path& file);  // Error{input}: which file, which key, expected, found
  TokenFile(TokenFile&&) noexcept;
  ~TokenFile();
  const std::filesystem::path& path() const;
  int64_t n_tokens() const;
  int64_t n_documents() const;
  int64_t document_offset(int64_t document) const;         // document in [0, n_documents]
  int64_t vocab_size() const;                              // of the tokenizer
  int64_t max_token() const;                               // largest id present
  int64_t n_bytes() const;                                 // of the text the tokens came from
  const std::string& tokenizer_json() const;               // "bytes" tokenizer too
  const std::string& tokenizer_identity() const;
  const std::string& fingerprint() const;                  // digest of tokens and document offsets
  void read(int64_t first, int64_t n, int32_t* dst) const; // tokens [first, first+n)
  bool verify() const;                                     // recomputes the fingerprint

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Streaming writer: tokens are spooled beside the target, then copied into the HDF5 file (2x disk meanwhile); the target
// appears only when finish() is done.
class TokenFileWriter {
 public:
  TokenFileWriter(const std::filesystem::path& file, int64_t vocab_size, const std::string& tokenizer_json,
                  const std::string& tokenizer_identity);
  ~TokenFileWriter();                                      // without finish(): removes what it wrote
  void add_document(const std::vector<int32_t>& tokens, int64_t text_bytes);
  void finish();
  int64_t n_tokens() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rw
