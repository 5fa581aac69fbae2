#include "libcore/base/units.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "libcore/base/error.h"

namespace rw {

int64_t parse_size(const std::string& text, const std::string& what) {
  const auto refuse = [&]() {
    fail(ErrorKind::usage,
         "{}: expected a whole number, optionally with K, M, G, T, Ki, Mi, Gi or Ti (all binary), found \"{}\"", what,
         text);
  };
  int64_t value = 0;
  size_t i = 0;
  const bool negative = !text.empty() && text[0] == '-';
  if (negative) ++i;
  const size_t first_digit = i;
  for (; i < text.size() && ((text[i] >= '0' && text[i] <= '9') || (text[i] == '_' && i > first_digit)); ++i) {
    if (text[i] == '_') continue;
    if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, text[i] - '0', &value)) refuse();
  }
  if (i == first_digit || text[i - 1] == '_') refuse();
  std::string suffix = text.substr(i);
  if (!suffix.empty() && suffix.back() == 'B') suffix.pop_back();
  if (suffix.size() == 2 && suffix[1] == 'i') suffix.pop_back();
  int shift = 0;
  if (!suffix.empty()) {
    const size_t power = std::string("KMGT").find(static_cast<char>(std::toupper(suffix[0])));
    if (suffix.size() != 1 || power == std::string::npos) refuse();
    shift = 10 * (static_cast<int>(power) + 1);
  }
  if (__builtin_mul_overflow(value, int64_t{1} << shift, &value)) refuse();
  return negative ? -value : value;
}

std::string format_bytes(double bytes) {
  constexpr std::array<const char*, 6> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  size_t unit = 0;
  while (std::abs(bytes) >= 1024 && unit + 1 < kUnits.size()) bytes /= 1024, ++unit;
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, kUnits[unit]);
}

std::string format_count(double n) {
  constexpr std::array<const char*, 5> kUnits = {"", "K", "M", "B", "T"};
  size_t unit = 0;
  while (std::abs(n) >= 1000 && unit + 1 < kUnits.size()) n /= 1000, ++unit;
  return unit == 0 ? fmt::format("{:.0f}", n) : fmt::format("{:.1f}{}", n, kUnits[unit]);
}

std::string format_seconds(double s) {
  if (!(s >= 0) || s > 1e9) return "?";
  if (s < 60) return fmt::format("{:.1f} s", s);
  const int64_t t = std::llround(s);
  if (t < 3600) return fmt::format("{}:{:02}", t / 60, t % 60);
  return fmt::format("{}:{:02}:{:02}", t / 3600, t / 60 % 60, t % 60);
}

int64_t divide_exact(int64_t a, int64_t b, const char* a_name, const char* b_name) {
  if (b <= 0 || a % b != 0) fail(ErrorKind::usage, "{} = {} is not divisible by {} = {}", a_name, a, b_name, b);
  return a / b;
}

}  // namespace rw
