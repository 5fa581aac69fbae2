// A corpus as token ids: an HDF5 file with contiguous datasets `tokens` (u16 when the vocabulary is at most 65,536,
// else i32), `document_offsets` (i64, n_documents + 1, ascending from 0 to n_tokens) and `tokenizer_json` (u8), and
// attributes (format version, vocabulary size, fingerprint, ...). In front of the HDF5 signature stands a header with
// the same facts (token_header.h); reading goes by it and by a memory map, so opening and reading never enter the HDF5
// library.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace rw {

class TokenFile {
 public:
  // Error{input}: which file, which key, expected, found. Checks everything but the tokens themselves (read() keeps
  // them in range, verify() compares their digest).
  explicit TokenFile(const std::filesystem::path& file);
  TokenFile(TokenFile&&) noexcept;
  ~TokenFile();
  const std::filesystem::path& path() const;
  int64_t n_tokens() const;
  int64_t n_documents() const;
  int64_t document_offset(int64_t document) const;  // document in [0, n_documents]
  int64_t vocab_size() const;                       // of the tokenizer
  int64_t max_token() const;                        // largest id present
  int64_t n_bytes() const;                          // of the text the tokens came from
  const std::string& tokenizer_json() const;        // "bytes" tokenizer too
  const std::string& tokenizer_identity() const;
  const std::string& fingerprint() const;  // digest of tokens and document offsets
  // Tokens [first, first + n). Error{input} on an id outside [0, max_token]: the file was damaged after it was made.
  void read(int64_t first, int64_t n, int32_t* dst) const;
  bool verify() const;  // recomputes the fingerprint

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Streaming writer: tokens are spooled beside the target (unnamed files, so that even a killed process leaves none),
// then copied into the HDF5 file (2x disk meanwhile); the target appears, or is replaced, only when finish() is done.
class TokenFileWriter {
 public:
  TokenFileWriter(const std::filesystem::path& file, int64_t vocab_size, const std::string& tokenizer_json,
                  const std::string& tokenizer_identity);
  ~TokenFileWriter();  // without finish(): removes what it wrote
  void add_document(const std::vector<int32_t>& tokens, int64_t text_bytes);
  // The same in pieces: any number of append(), then end_document().
  void append(const std::vector<int32_t>& tokens, int64_t text_bytes);
  void end_document();
  void finish();  // Error{input} on an empty corpus
  int64_t n_tokens() const;
  int64_t n_documents() const;
  int64_t n_bytes() const;                 // of text
  const std::string& fingerprint() const;  // after finish()

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rw
