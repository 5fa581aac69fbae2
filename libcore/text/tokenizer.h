// Tokenizers: text <-> token ids.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace rw {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual int64_t vocab_size() const = 0;    // largest id + 1
  // Appends the ids of `text` (UTF-8; an invalid byte sequence becomes U+FFFD first, as the Hugging Face Python bindings'
  // errors="replace" would; `bytes` takes any bytes). Special tokens in the text are matched as such when `specials`.
  enum class Specials { match, as_text };
  virtual void encode(std::string_view text, std::vector<int32_t>& ids, Specials specials = Specials::match) const = 0;
  // The bytes of one id (may be part of a UTF-8 character); empty for an unknown id. Special tokens give their content.
  virtual std::string_view token_bytes(int32_t id) const = 0;
  virtual bool is_special(int32_t id) const = 0;
  virtual int32_t id_of(std::string_view token_content) const = 0;   // of an added/special token, or a vocabulary entry; -1
  // tokenizer.json that makes the same tokenizer (Hugging Face reads it); also its identity's input.
  virtual const std::string& json() const = 0;
  // End-of-text id to put between documents: <|endoftext|>, <|end_of_text|>, </s>, ... ; -1 when there is none.
  virtual int32_t end_of_text() const = 0;

  std::string decode(const std::vector<int32_t>& ids) const;
  std::string identity() const;  // "bytes" or "bpe-" + 16 hex digits of the json
};

// "bytes" (id = byte, 256 = end of text), a tokenizer.json, or a directory that holds one. Error{input} names file, key,
// expected and found.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path);
std::unique_ptr<Tokenizer> parse_tokenizer(std::string_view json, const std::string& where);
std::unique_ptr<Tokenizer> byte_tokenizer();

// Learns a byte-level BPE of `vocab_size` tokens (256 bytes + merges + <|endoftext|>) with GPT-2's pre-tokenizer; feed text in
// documents, then finish() gives a tokenizer.json that Hugging Face loads. Deterministic; memory is that of the distinct words.
class BpeTrainer {
 public:
  explicit BpeTrainer(int64_t vocab_size);
  ~BpeTrainer();
  void add(std::string_view document);
  std::string finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rw
