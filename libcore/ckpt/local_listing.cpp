// What a run's local tier holds on this host.
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/json.h"
#include "libcore/base/log.h"
#include "libcore/ckpt/node_folders.h"
#include "libcore/ckpt/run_listing.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

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
  for (const int node : node_folders_here(pattern, run_id)) {
    const fs::path folder = node_folder(pattern, run_id, node);
    for (ListedStep& step : list_steps(folder)) {
      if (step.state == StepState::committed || step.state == StepState::part) step.state = StepState::local;
      list.push_back(std::move(step));
    }
  }
  return list;
}

}  // namespace rw
