#include "kernels/simt/environment.h"

#include <charconv>
#include <cstdlib>
#include <string>
#include <string_view>

#include "kernels/cuda/error.h"

namespace rw::simt {
namespace {

struct SharedBytes {
  int capability, kib;
};
constexpr SharedBytes kShared[] = {{75, 64},  {80, 163},  {86, 99},   {87, 163}, {89, 99},
                                   {90, 227}, {100, 227}, {103, 227}, {120, 99}, {121, 99}};

[[noreturn]] void refuse(const char* variable, const std::string& expected, std::string_view found) {
  throw cuda::CudaError(std::string(variable) + ": expected " + expected + ", found \"" + std::string(found) + "\"");
}

std::string_view text_of(const char* variable) {
  const char* text = std::getenv(variable);
  return text != nullptr ? text : "";
}

// The number that a text begins with, and what follows it.
struct Begun {
  bool is_number;
  int64_t value;
  std::string_view rest;
};
Begun begun(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return {error == std::errc(), value, text.substr(static_cast<size_t>(end - text.data()))};
}

}  // namespace

int64_t number_from(const char* variable, int64_t least, int64_t otherwise) {
  const std::string_view text = text_of(variable);
  if (text.empty()) return otherwise;
  const Begun n = begun(text);
  if (!n.is_number || !n.rest.empty() || n.value < least)
    refuse(variable, "a whole number of " + std::to_string(least) + " or more", text);
  return n.value;
}

int64_t bytes_from(const char* variable, int64_t otherwise) {
  const std::string_view text = text_of(variable);
  if (text.empty()) return otherwise;
  const Begun n = begun(text);
  std::string_view unit = n.rest;
  if (unit.ends_with('B')) unit.remove_suffix(1);
  if (unit.size() == 2 && unit[1] == 'i') unit.remove_suffix(1);
  const size_t power = unit.empty() ? 0 : std::string_view("KMGT").find(unit[0]) + 1;  // of 1024; 0: of nothing known
  int64_t bytes = 0;
  if (!n.is_number || n.value < 1 || unit.size() > 1 || (power == 0 && !unit.empty()) ||
      __builtin_mul_overflow(n.value, int64_t{1} << (10 * power), &bytes))
    refuse(variable, "bytes of a device's memory, 1 or more, optionally with K, M, G or T (binary), like 512M", text);
  return bytes;
}

int capability_from(const char* variable, int otherwise) {
  const std::string_view text = text_of(variable);
  if (text.empty()) return otherwise;
  const Begun n = begun(text);
  const int capability = n.is_number && n.rest.empty() && n.value > 0 && n.value < 1000 ? static_cast<int>(n.value) : 0;
  if (shared_bytes_of(capability) != 0) return capability;
  std::string known;
  for (const SharedBytes& s : kShared) known += (known.empty() ? "" : ", ") + std::to_string(s.capability);
  refuse(variable, "a compute capability times ten (" + known + ")", text);
}

int64_t shared_bytes_of(int capability) {
  for (const SharedBytes& s : kShared)
    if (s.capability == capability) return int64_t{s.kib} << 10;
  return 0;
}

}  // namespace rw::simt
