#include "libcore/train/local_dirs.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/json.h"
#include "libcore/ckpt/node_folders.h"
#include "libcore/comm/agree.h"

namespace rw {

namespace fs = std::filesystem;

fs::path local_dir_to_read(const std::string& pattern, const std::string& run_id, Comm& comm) {
  const std::vector<int> nodes = comm.nodes();
  const std::vector<std::string> hosts = comm.hosts();
  const int mine = nodes[static_cast<size_t>(comm.rank())];
  if (pattern.find(kNodePlace) == std::string::npos) return node_folder(pattern, run_id, mine);
  const std::vector<std::string> lists = comm.gather_text(Json(node_folders_here(pattern, run_id)).dump());
  const int n_nodes = 1 + *std::max_element(nodes.begin(), nodes.end());
  std::set<std::pair<std::string, int>> taken;
  int chosen = mine;
  for (int node = 0; node <= mine; ++node) {
    const auto first = static_cast<size_t>(std::find(nodes.begin(), nodes.end(), node) - nodes.begin());
    const auto here = Json::parse(lists[first]).get<std::set<int>>();
    chosen = node;
    if (here.contains(node)) continue;
    for (const int n : here)
      if (n >= n_nodes && taken.emplace(hosts[first], n).second) {
        chosen = n;
        break;
      }
  }
  return node_folder(pattern, run_id, chosen);
}

void claim_local_dir(const fs::path& dir, Comm& comm) {
  if (dir.empty()) return;
  const std::vector<int> nodes = comm.nodes();
  const int mine = nodes[static_cast<size_t>(comm.rank())];
  const bool leads = std::find(nodes.begin(), nodes.end(), mine) - nodes.begin() == comm.rank();
  const fs::path owner = dir / ".node";
  agree(comm, [&] {
    if (!leads) return;
    std::error_code error;
    make_directories(dir, error);
    if (error)
      fail(ErrorKind::runtime, "--local-checkpoint-dir {}: cannot be created: {}", dir.string(), error.message());
    write_file_atomic(owner, std::to_string(mine));
  });
  agree(comm, [&] {
    if (const std::string found = read_regular_file(owner); found != std::to_string(mine))
      fail(
          ErrorKind::usage,
          "--local-checkpoint-dir {}: nodes {} and {} share this folder; give each node its own disk or memory, or put "
          "{{node}} into the name",
          dir.string(), std::min(mine, std::atoi(found.c_str())), std::max(mine, std::atoi(found.c_str())));
  });
}

}  // namespace rw
