#include "libcore/text/jinja/numbers.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>

#include "libcore/text/jinja/characters.h"
#include "libcore/text/jinja/value.h"

namespace rw::jinja {
namespace {

std::string_view stripped(std::string_view text) {
  text.remove_prefix(leading_space(text));
  text.remove_suffix(trailing_space(text));
  return text;
}

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char small = static_cast<char>(c | 0x20);
  return small >= 'a' && small <= 'z' ? small - 'a' + 10 : 99;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

std::optional<int64_t> parse_integer(std::string_view text, int64_t base) {
  if (base != 0 && (base < 2 || base > 36)) throw Fault("int: the base is 0 or 2 to 36");
  text = stripped(text);
  bool negative = false;
  if (!text.empty() && (text[0] == '+' || text[0] == '-')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  bool prefix = false;
  if (text.size() > 1 && text[0] == '0') {
    const char letter = static_cast<char>(text[1] | 0x20);
    const int64_t named = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    if (named != 0 && (base == 0 || base == named)) {
      base = named;
      prefix = true;
      text.remove_prefix(2);
    }
  }
  const bool any_base = base == 0;
  if (any_base) base = 10;
  bool after_digit = prefix;  // an underscore stands between digits, or after the prefix
  bool overflow = false;
  int64_t value = 0;
  for (const char c : text) {
    if (c == '_' && after_digit) {
      after_digit = false;
      continue;
    }
    if (c == '_' || digit_of(c) >= base) return std::nullopt;
    after_digit = true;
    overflow |= __builtin_mul_overflow(value, base, &value) || __builtin_add_overflow(value, digit_of(c), &value);
  }
  if (!after_digit || text.empty()) return std::nullopt;
  if (overflow) throw Fault("an integer is beyond 64 bits");
  const bool all_zero = std::all_of(text.begin(), text.end(), [](char c) { return c == '0' || c == '_'; });
  if (any_base && text[0] == '0' && !all_zero) return std::nullopt;
  return negative ? -value : value;
}

std::optional<double> parse_real(std::string_view text) {
  text = stripped(text);
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '_') {
      if (i == 0 || i + 1 == text.size() || !is_digit(text[i - 1]) || !is_digit(text[i + 1])) return std::nullopt;
      continue;
    }
    plain += text[i];
  }
  std::string_view rest = plain;
  bool negative = false;
  if (!rest.empty() && (rest[0] == '+' || rest[0] == '-')) {
    negative = rest[0] == '-';
    rest.remove_prefix(1);
  }
  std::string small(rest);
  for (char& c : small)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c | 0x20);
  double value = 0;
  if (small == "inf" || small == "infinity") {
    value = std::numeric_limits<double>::infinity();
  } else if (small == "nan") {
    value = std::numeric_limits<double>::quiet_NaN();
  } else {
    if (rest.empty() || (!is_digit(rest[0]) && rest[0] != '.')) return std::nullopt;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    if (end != rest.data() + rest.size()) return std::nullopt;
    // Out of range is no error in Python: zero or infinity.
    if (error == std::errc::result_out_of_range) value = std::strtod(small.c_str(), nullptr);
    else if (error != std::errc()) return std::nullopt;
  }
  return negative ? -value : value;
}

}  // namespace rw::jinja
