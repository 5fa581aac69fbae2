// Tokenizers: text <-> token ids.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace rw {

struct TextTemplate {
  std::vector<int32_t> before, after;  // Llama 3: before = {<|begin_of_text|>}
};

// Immutable once made: any number of threads may use one.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual int64_t vocab_size() const = 0;  // largest id + 1
  // Appends the ids of `text`, as Hugging Face's encode(text, add_special_tokens=False) would. Of invalid UTF-8 every
  // maximal subpart becomes U+FFFD first, as Python's bytes.decode(errors="replace") does; `bytes` takes any bytes.
  // Special tokens in the text are matched as such, or are text like any other (added tokens that are not special are
  // always matched).
  enum class Specials { match, as_text };
  virtual void encode(std::string_view text, std::vector<int32_t>& ids, Specials specials = Specials::match) const = 0;
  // The bytes of one id (may be part of a UTF-8 character); empty for an unknown id. Special tokens give their content.
  virtual std::string_view token_bytes(int32_t id) const = 0;
  virtual bool is_special(int32_t id) const = 0;
  virtual int32_t id_of(
      std::string_view token_content) const = 0;  // of an added/special token, or a vocabulary entry; -1
  // tokenizer.json that makes the same tokenizer (Hugging Face reads it); also its identity's input.
  virtual const std::string& json() const = 0;
  // Ids that Hugging Face's post-processor puts around a text with add_special_tokens=True (encode never does).
  virtual const TextTemplate& text_template() const = 0;
  // End-of-text id to put between documents: <|endoftext|>, <|end_of_text|>, </s>, ... ; -1 when there is none.
  virtual int32_t end_of_text() const = 0;

  std::string decode(const std::vector<int32_t>& ids) const;
  std::string identity() const;  // "bytes" or "bpe-" + 16 hex digits of the json
};

// "bytes" (id = byte, 256 = end of text), a tokenizer.json, or a directory that holds one. Any byte-level BPE of
// Hugging Face is read (GPT-2's, Llama 3's, Qwen2's and their kin); ids are equal to theirs on characters of Unicode 14
// and before. What is not supported (WordPiece, Unigram, Metaspace, ...) is refused: Error{input} names file, key,
// expected and found. `truncation` and `padding` of the file are not applied.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path);
std::unique_ptr<Tokenizer> parse_tokenizer(std::string_view json, const std::string& where);
std::unique_ptr<Tokenizer> byte_tokenizer();

// Learns a byte-level BPE of `vocab_size` tokens (256 bytes + merges + <|endoftext|>) with GPT-2's pre-tokenizer; feed
// text in documents, then finish() gives a tokenizer.json that Hugging Face loads. Ids lie as GPT-2's: bytes in the
// order of their characters, merges, <|endoftext|> last. The pair merged next is the most frequent one, of equals that
// with the lowest left id, then the lowest right id (Hugging Face's rule); a pair seen once is never merged, so little
// text gives fewer tokens. Memory is that of the distinct words.
class BpeTrainer {
 public:
  explicit BpeTrainer(int64_t vocab_size);  // at least 257; Error{usage} otherwise
  ~BpeTrainer();
  void add(std::string_view document);
  std::string finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rw
