// What a run's local tier holds on this host.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/json.h"
#include "libcore/base/log.h"
#include "libcore/ckpt/run_listing.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kNode = "{node}";

// What --local-checkpoint-dir names on a node.
fs::path of_node(const fs::path& pattern, const std::string& node) {
  std::string dir = pattern.string();
  for (size_t at; (at = dir.find(kNode)) != std::string::npos;) dir.replace(at, kNode.size(), node);
  return dir;
}

// The numbers in the names that are there in the place of the first {node}.
std::set<std::string> nodes_there(const fs::path& pattern) {
  fs::path parent;
  std::string name;
  for (const fs::path& part : pattern) {
    name = part.string();
    if (name.find(kNode) != std::string::npos) break;
    parent /= part;
  }
  std::set<std::string> nodes;
  const std::string before = name.substr(0, name.find(kNode));
  std::error_code error;
  for (fs::directory_iterator it(parent.empty() ? "." : parent, error), end; !error && it != end; it.increment(error)) {
    const std::string there = it->path().filename().string();
    if (!there.starts_with(before)) continue;
    const size_t stop = std::min(there.find_first_not_of("0123456789", before.size()), there.size());
    const std::string node = there.substr(before.size(), stop - before.size());
    if (!node.empty() && of_node(name, node) == there) nodes.insert(node);
  }
  return nodes;
}

std::string text_at(const Json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

std::vector<ListedStep> list_local_steps(const fs::path& run) {
  std::vector<ListedStep> list;
  std::error_code error;
  if (!fs::exists(run / "run.json", error)) return list;
  Json identity;
  try {
    identity = read_json(run / "run.json");
  } catch (const Error& e) {
    log_warning("{}; whether the run has local checkpoints is not known", e.what());
    return list;
  }
  const std::string run_id = text_at(identity, "run_id");
  const std::string pattern =
      text_at(identity.is_object() ? identity.value("config", Json()) : Json(), "local_checkpoint_dir");
  if (pattern.empty() || run_id.empty()) return list;
  std::vector<fs::path> folders;
  if (pattern.find(kNode) == std::string::npos) folders.push_back(fs::path(pattern) / run_id);
  else
    for (const std::string& node : nodes_there(pattern)) folders.push_back(of_node(pattern, node) / run_id);
  for (const fs::path& folder : folders) {
    if (!fs::is_directory(folder, error)) continue;
    for (ListedStep& step : list_steps(folder)) {
      if (step.state == StepState::committed || step.state == StepState::part) step.state = StepState::local;
      list.push_back(std::move(step));
    }
  }
  return list;
}

}  // namespace rw
