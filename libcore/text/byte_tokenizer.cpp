// The tokenizer without a file: a byte is its own id, 256 is the end of a text.
#include <array>

#include "libcore/text/byte_alphabet.h"
#include "libcore/text/tokenizer_json.h"

namespace rw {
namespace {

constexpr int32_t kEndId = 256;

class ByteTokenizer : public Tokenizer {
 public:
  ByteTokenizer() : json_(byte_tokenizer_json()) {
    for (size_t byte = 0; byte < bytes_.size(); ++byte) bytes_[byte] = static_cast<char>(byte);
  }

  int64_t vocab_size() const override { return kEndId + 1; }

  void encode(std::string_view text, std::vector<int32_t>& ids, Specials specials) const override {
    ids.reserve(ids.size() + text.size());
    for (size_t at = 0; at < text.size();) {
      if (specials == Specials::match && text[at] == kEndOfText.front() && text.substr(at).starts_with(kEndOfText)) {
        ids.push_back(kEndId);
        at += kEndOfText.size();
      } else {
        ids.push_back(static_cast<uint8_t>(text[at++]));
      }
    }
  }

  std::string_view token_bytes(int32_t id) const override {
    if (id == kEndId) return kEndOfText;
    if (id < 0 || id > kEndId) return {};
    return {&bytes_[static_cast<size_t>(id)], 1};
  }
  bool is_special(int32_t id) const override { return id == kEndId; }
  int32_t id_of(std::string_view content) const override {
    if (content == kEndOfText) return kEndId;
    std::string byte;
    return append_alphabet_bytes(content, byte) && byte.size() == 1 ? static_cast<uint8_t>(byte[0]) : -1;
  }
  const std::string& json() const override { return json_; }
  const TextTemplate& text_template() const override { return text_template_; }
  int32_t end_of_text() const override { return kEndId; }

 private:
  std::array<char, 256> bytes_{};
  std::string json_;
  TextTemplate text_template_;
};

}  // namespace

std::string byte_tokenizer_json() {
  std::vector<std::string> tokens;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    tokens.push_back(alphabet_text({&c, 1}));
  }
  return write_tokenizer_json(tokens, {});
}

std::unique_ptr<Tokenizer> byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

}  // namespace rw
