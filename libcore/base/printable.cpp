#include "libcore/base/printable.h"

#include <cstdint>

namespace rw {
namespace {

// Length of the UTF-8 character at the front, its value in `code`; 0 when it is none (overlong forms, surrogates).
size_t take_character(std::string_view s, uint32_t& code) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned char first = byte(0);
  const size_t n = first < 0x80                    ? 1
                   : first >= 0xC2 && first < 0xE0 ? 2
                   : first >= 0xE0 && first < 0xF0 ? 3
                   : first >= 0xF0 && first < 0xF5 ? 4
                                                   : 0;
  if (n == 0 || s.size() < n) return 0;
  code = n == 1 ? first : first & (0xFFU >> (n + 1));
  for (size_t i = 1; i < n; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3FU);
  }
  const bool is_overlong = (n == 3 && code < 0x800) || (n == 4 && code < 0x10000);
  return is_overlong || (code >= 0xD800 && code < 0xE000) || code > 0x10FFFF ? 0 : n;
}

bool acts(uint32_t c) {
  return c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x200E || c == 0x200F || c == 0x61C ||
         (c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}

std::string shown(std::string_view text, bool line_breaks_stay) {
  std::string out;
  while (!text.empty()) {
    uint32_t code = 0;
    const size_t n = take_character(text, code);
    if (n == 0 || (acts(code) && !(line_breaks_stay && code == '\n'))) out += '?';
    else out += text.substr(0, n);
    text.remove_prefix(n == 0 ? 1 : n);
  }
  return out;
}

}  // namespace

std::string printable(std::string_view text) { return shown(text, true); }
std::string printable_line(std::string_view text) { return shown(text, false); }

}  // namespace rw
