#include "libcore/train/local_dirs.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/json.h"
#include "libcore/comm/agree.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kNode = "{node}";

// The numbers for which the pattern's folder of this run exists here. {node} is part of one name of the path.
std::set<int> numbers_here(const std::string& pattern, const std::string& run_id) {
  std::set<int> numbers;
  const size_t at = pattern.find(kNode);
  const size_t begin = pattern.rfind('/', at) == std::string::npos ? 0 : pattern.rfind('/', at) + 1;
  const size_t end = std::min(pattern.find('/', at), pattern.size());
  const std::string before = pattern.substr(begin, at - begin),
                    after = pattern.substr(at + kNode.size(), end - at - kNode.size());
  std::error_code error;
  const fs::path parent = begin == 0 ? fs::path(".") : fs::path(pattern.substr(0, begin));
  for (fs::directory_iterator it(parent, error), last; !error && it != last; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.size() <= before.size() + after.size() || !name.starts_with(before) || !name.ends_with(after)) continue;
    const std::string middle = name.substr(before.size(), name.size() - before.size() - after.size());
    int n = -1;
    const auto [rest, fault] = std::from_chars(middle.data(), middle.data() + middle.size(), n);
    if (fault != std::errc() || rest != middle.data() + middle.size() || n < 0) continue;
    std::error_code ignored;
    if (fs::is_directory(local_dir(pattern, run_id, n), ignored)) numbers.insert(n);
  }
  return numbers;
}

}  // namespace

fs::path local_dir(const std::string& pattern, const std::string& run_id, int node) {
  if (pattern.empty()) return {};
  std::string dir = pattern;
  for (size_t at; (at = dir.find(kNode)) != std::string::npos;) dir.replace(at, kNode.size(), std::to_string(node));
  return fs::path(dir) / run_id;
}

fs::path local_dir_to_read(const std::string& pattern, const std::string& run_id, Comm& comm) {
  const std::vector<int> nodes = comm.nodes();
  const std::vector<std::string> hosts = comm.hosts();
  const int mine = nodes[static_cast<size_t>(comm.rank())];
  if (pattern.find(kNode) == std::string::npos) return local_dir(pattern, run_id, mine);
  const std::vector<std::string> lists = comm.gather_text(Json(numbers_here(pattern, run_id)).dump());
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
  return local_dir(pattern, run_id, chosen);
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
