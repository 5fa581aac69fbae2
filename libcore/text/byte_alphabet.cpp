#include "libcore/text/byte_alphabet.h"

#include "libcore/text/utf8.h"

namespace rw {
namespace {

constexpr uint32_t kMoved = 0x100;  // the character of the first byte that does not stand for itself

constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Tables {
  std::array<uint16_t, 256> character{};
  std::array<uint8_t, 256> moved{};  // byte of character kMoved + i
  unsigned n_moved = 0;
};

constexpr Tables make_tables() {
  Tables t;
  for (unsigned byte = 0; byte < 256; ++byte) {
    if (stands_for_itself(byte)) {
      t.character[byte] = static_cast<uint16_t>(byte);
    } else {
      t.moved[t.n_moved] = static_cast<uint8_t>(byte);
      t.character[byte] = static_cast<uint16_t>(kMoved + t.n_moved++);
    }
  }
  return t;
}

constexpr Tables kTables = make_tables();

}  // namespace

uint32_t byte_character(uint8_t byte) { return kTables.character[byte]; }

std::array<uint8_t, 256> bytes_by_character() {
  std::array<uint8_t, 256> order{};
  size_t n = 0;
  for (unsigned byte = 0; byte < 256; ++byte) {
    if (stands_for_itself(byte)) order[n++] = static_cast<uint8_t>(byte);
  }
  for (unsigned i = 0; i < kTables.n_moved; ++i) order[n++] = kTables.moved[i];
  return order;
}

std::string alphabet_text(std::string_view bytes) {
  std::string text;
  text.reserve(2 * bytes.size());
  for (const char byte : bytes) append_utf8(text, byte_character(static_cast<uint8_t>(byte)));
  return text;
}

bool append_alphabet_bytes(std::string_view text, std::string& bytes) {
  const size_t before = bytes.size();
  for (size_t at = 0; at < text.size();) {
    const int length = utf8_length(text, at);
    const uint32_t c = length == 0 ? UINT32_MAX : utf8_at(text, at);
    if (c < kMoved && stands_for_itself(c)) {
      bytes.push_back(static_cast<char>(c));
    } else if (c >= kMoved && c < kMoved + kTables.n_moved) {
      bytes.push_back(static_cast<char>(kTables.moved[c - kMoved]));
    } else {
      bytes.resize(before);
      return false;
    }
    at += static_cast<size_t>(length);
  }
  return true;
}

}  // namespace rw
