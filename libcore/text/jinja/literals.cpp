#include "libcore/text/jinja/literals.h"

#include <algorithm>

#include "libcore/text/jinja/value.h"
#include "libcore/text/utf8.h"

namespace rw::jinja {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  const char small = static_cast<char>(c | 0x20);
  return small >= 'a' && small <= 'f' ? small - 'a' + 10 : -1;
}

uint32_t read_hex(std::string_view text, size_t at, size_t n) {
  if (at + n > text.size()) throw Fault("an escape in a string is cut short");
  uint32_t value = 0;
  for (size_t i = at; i < at + n; ++i) {
    const int digit = hex_digit(text[i]);
    if (digit < 0) throw Fault("an escape in a string needs more hexadecimal digits");
    value = value << 4 | static_cast<uint32_t>(digit);
  }
  return value;
}

void append_checked(std::string& out, uint32_t c) {
  if (c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) throw Fault("an escape in a string is no Unicode character");
  append_utf8(out, c);
}

// Digits with single underscores between them, from `at`: where they end.
template <typename IsDigit>
size_t skip_digits(std::string_view text, size_t at, IsDigit is) {
  while (at < text.size() && (is(text[at]) || (text[at] == '_' && at + 1 < text.size() && is(text[at + 1])))) ++at;
  return at;
}

}  // namespace

std::string unify_newlines(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r') {
      out += text[i];
      continue;
    }
    out += '\n';
    if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
  }
  return out;
}

std::string unescape(std::string_view s) {
  std::string out;
  for (size_t at = 0; at < s.size();) {
    if (s[at] != '\\' || at + 1 >= s.size()) {
      out += s[at++];
      continue;
    }
    const char c = s[at + 1];
    at += 2;
    switch (c) {
      case '\n': break;
      case '\\':
      case '\'':
      case '"': out += c; break;
      case 'a': out += '\a'; break;
      case 'b': out += '\b'; break;
      case 'f': out += '\f'; break;
      case 'n': out += '\n'; break;
      case 'r': out += '\r'; break;
      case 't': out += '\t'; break;
      case 'v': out += '\v'; break;
      case 'x':
      case 'u':
      case 'U': {
        const size_t n = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        append_checked(out, read_hex(s, at, n));
        at += n;
        break;
      }
      case 'N': throw Fault("character names (\\N) in strings are not supported");
      default:
        if (c >= '0' && c <= '7') {
          uint32_t value = static_cast<uint32_t>(c - '0');
          for (int i = 0; i < 2 && at < s.size() && s[at] >= '0' && s[at] <= '7'; ++i)
            value = value * 8 + static_cast<uint32_t>(s[at++] - '0');
          append_utf8(out, value);
        } else {
          out += '\\';
          out += c;
        }
    }
  }
  return out;
}

NumberLiteral scan_number(std::string_view text, bool after_dot) {
  const size_t whole = skip_digits(text, 0, is_digit);
  if (!after_dot) {
    size_t end = whole;
    if (end + 1 < text.size() && text[end] == '.' && is_digit(text[end + 1]))
      end = skip_digits(text, end + 1, is_digit);
    if (end < text.size() && (text[end] | 0x20) == 'e') {
      size_t exponent = end + 1;
      if (exponent < text.size() && (text[exponent] == '+' || text[exponent] == '-')) ++exponent;
      if (exponent < text.size() && is_digit(text[exponent])) end = skip_digits(text, exponent, is_digit);
    }
    if (end > whole) return {end, true};
  }
  if (text[0] != '0') return {whole, false};
  const char base = text.size() > 1 ? static_cast<char>(text[1] | 0x20) : '\0';
  const auto is_base_digit = [&](char c) {
    return base == 'x' ? hex_digit(c) >= 0 : c >= '0' && c <= (base == 'o' ? '7' : '1');
  };
  if (base == 'x' || base == 'o' || base == 'b') {
    const size_t end = skip_digits(text, 2, is_base_digit);
    if (end > 2) return {end, false};
  }
  return {skip_digits(text, 0, [](char c) { return c == '0'; }), false};
}

}  // namespace rw::jinja
