#include "libcore/plan/place/place_names.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "libcore/base/error.h"
#include "libcore/base/toml_table.h"

namespace rw {
namespace {

constexpr std::string_view kLower = "abcdefghijklmnopqrstuvwxyz", kUpper = "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
                           kDigits = "0123456789";

bool made_of(std::string_view text, std::string_view others) {
  return std::all_of(text.begin(), text.end(), [&](char c) {
    return kLower.find(c) != kLower.npos || kUpper.find(c) != kUpper.npos || kDigits.find(c) != kDigits.npos ||
           others.find(c) != others.npos;
  });
}

[[noreturn]] void refuse(const char* flag, const std::string& value, const char* expected) {
  fail(ErrorKind::usage, "{} {}: expected {}", flag, toml_quoted(value), expected);
}

bool is_label(const std::string& s) {
  const auto dash = [](char c) { return c == '-'; };
  return !s.empty() && s.size() <= 63 && made_of(s, "-") && s.find_first_of(kUpper) == s.npos && !dash(s.front()) &&
         !dash(s.back());
}

bool is_bus_id(const std::string& s) {
  const auto hex = [&](size_t begin, size_t n) {
    return s.substr(begin, n).find_first_not_of("0123456789abcdefABCDEF") == s.npos;
  };
  // nvidia-smi writes the domain with eight digits.
  const size_t domain = s.find(':');
  if ((domain != 4 && domain != 8) || s.size() != domain + 8) return false;
  return s[domain + 3] == ':' && s[domain + 6] == '.' && hex(0, domain) && hex(domain + 1, 2) && hex(domain + 4, 2) &&
         s.back() >= '0' && s.back() <= '7';
}

void check_bus_ids(const char* flag, const std::vector<std::string>& ids, std::set<std::string>& seen) {
  for (std::string id : ids) {
    if (!is_bus_id(id)) refuse(flag, id, "a PCI address like 0000:1b:00.0");
    std::transform(id.begin(), id.end(), id.begin(), [](char c) { return c >= 'A' && c <= 'F' ? c - 'A' + 'a' : c; });
    if (!seen.insert(id).second) refuse(flag, id, "each address once");
  }
}

}  // namespace

bool is_host_name(const std::string& name) {
  constexpr size_t kLongest = 253;
  return !name.empty() && name.size() <= kLongest && name.front() != '-' && made_of(name, ".-_:");
}

void check_place_names(const PlaceNames& names) {
  if (!made_of(names.interface, "._-:,"))
    refuse("--interface", names.interface, "letters, digits and ._-: (several with commas)");
  for (const std::string& nic : names.nics)
    if (nic.empty() || !made_of(nic, "._-")) refuse("--nic", nic, "letters, digits and ._-, like mlx5_0");
  std::set<std::string> seen;
  check_bus_ids("--gpu-bus-id", names.gpu_bus_ids, seen);
  check_bus_ids("--nic-bus-id", names.nic_bus_ids, seen);
  if (!is_label(names.job))
    refuse("--job-name", names.job, "1 to 63 small letters, digits and dashes, no dash at an end (RFC 1123)");
  if (names.image.empty() || !made_of(names.image, "._-/:@+"))
    refuse("--image", names.image, "an image's name: letters, digits and ._-/:@+");
  const std::string& leaf = names.leaf_label;
  if (leaf.empty() || !made_of(leaf, "._-/") || std::count(leaf.begin(), leaf.end(), '/') > 1 || leaf.back() == '/' ||
      leaf.front() == '/')
    refuse("--leaf-label", leaf, "a label's key: letters, digits and ._-, and one / after its domain");
}

}  // namespace rw
