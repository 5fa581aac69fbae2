#include "libcore/ckpt/node_folders.h"

#include <charconv>
#include <string_view>
#include <system_error>

namespace rw {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kPlace = kNodePlace;

std::string filled(std::string pattern, int node) {
  for (size_t at; (at = pattern.find(kPlace)) != std::string::npos;)
    pattern.replace(at, kPlace.size(), std::to_string(node));
  return pattern;
}

}  // namespace

fs::path node_folder(const std::string& pattern, const std::string& run_id, int node) {
  return pattern.empty() ? fs::path() : fs::path(filled(pattern, node)) / run_id;
}

std::set<int> node_folders_here(const std::string& pattern, const std::string& run_id) {
  std::set<int> found;
  std::error_code error;
  const auto look = [&](int node) {
    if (fs::is_directory(node_folder(pattern, run_id, node), error)) found.insert(node);
  };
  if (pattern.find(kPlace) == std::string::npos) {
    if (!pattern.empty()) look(0);
    return found;
  }
  fs::path parent;  // of the first name with a place in it
  std::string name;
  for (const fs::path& part : fs::path(pattern)) {
    name = part.string();
    if (name.find(kPlace) != std::string::npos) break;
    parent /= part;
  }
  const size_t before = name.find(kPlace);
  for (fs::directory_iterator it(parent.empty() ? "." : parent, error), end; !error && it != end; it.increment(error)) {
    const std::string there = it->path().filename().string();
    if (there.size() < before || there.compare(0, before, name, 0, before) != 0) continue;
    int node = -1;
    const auto [rest, fault] = std::from_chars(there.data() + before, there.data() + there.size(), node);
    if (fault == std::errc() && node >= 0 && filled(name, node) == there) look(node);
  }
  return found;
}

}  // namespace rw
