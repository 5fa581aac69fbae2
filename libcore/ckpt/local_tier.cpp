#include "libcore/ckpt/local_tier.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/hash.h"
#include "libcore/base/json.h"
#include "libcore/ckpt/commit.h"
#include "libcore/ckpt/file_digests.h"
#include "libcore/ckpt/file_transfer.h"
#include "libcore/ckpt/step_dirs.h"
#include "libcore/comm/agree.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

struct Nodes {
  std::vector<int> of;  // (ranks)
  std::map<int, std::vector<int>> members;
  int mine, index, size;  // this rank's node, its place among the node's ranks, their number
  explicit Nodes(Comm& comm) : of(comm.nodes()) {
    for (size_t r = 0; r < of.size(); ++r) members[of[r]].push_back(static_cast<int>(r));
    mine = of[static_cast<size_t>(comm.rank())];
    const std::vector<int>& here = members[mine];
    index = static_cast<int>(std::find(here.begin(), here.end(), comm.rank()) - here.begin());
    size = static_cast<int>(here.size());
  }
  int leader(int node) const { return members.at(node).front(); }
};

// What this node has: step and digest of the manifest's text.
using Claim = std::pair<int64_t, uint64_t>;
std::map<Claim, std::string> manifests_in(const fs::path& local, int64_t newer_than, std::string& passed_over) {
  std::map<Claim, std::string> found;
  for (const auto& [step, dir] : step_directories(local)) {
    if (step <= newer_than) continue;
    const std::string problem = attempt([&] {
      const std::string text = read_regular_file(dir / kManifestName);
      if (parse_manifest(text, (dir / kManifestName).string()).step == step) found[{step, hash64(text)}] = text;
    });
    if (!problem.empty()) passed_over += problem + "\n";
  }
  return found;
}

// The files of the manifest that this rank is to look at, of those that are in the directory.
struct Examined {
  std::vector<int64_t> whole;
  std::vector<std::string> faults;
};
Examined examine(const Manifest& manifest, const fs::path& dir, const Nodes& nodes) {
  Examined result;
  const std::vector<ExpectedFile> files = expected_files(manifest, dir);
  for (size_t f = 0; f < files.size(); ++f) {
    if (static_cast<int>(f) % nodes.size != nodes.index || !fs::exists(files[f].path)) continue;
    const std::vector<std::string> faults = file_faults({files[f]}, 1, nullptr);
    if (faults.empty()) result.whole.push_back(static_cast<int64_t>(f));
    else result.faults.push_back(faults.front());
  }
  return result;
}

}  // namespace

LocalStep find_local_step(const fs::path& local, int64_t newer_than, Comm& comm, std::vector<std::string>& notes) {
  const Nodes nodes(comm);
  const bool leads = nodes.index == 0;
  std::string passed_over;
  std::map<Claim, std::string> mine;
  Json claims = Json::array();
  if (leads) {
    const std::string problem = attempt([&] { mine = manifests_in(local, newer_than, passed_over); });
    if (!problem.empty()) passed_over += problem + "\n";
    for (const auto& [claim, text] : mine) claims.push_back({claim.first, hex64(claim.second)});
  }
  for (const std::string& text : comm.gather_text(passed_over))
    for (size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1)
      notes.push_back("ignored " + text.substr(at, end - at));
  std::map<Claim, int> candidates;  // the first rank that has the manifest
  const std::vector<std::string> all_claims = comm.gather_text(claims.dump());
  for (size_t r = 0; r < all_claims.size(); ++r)
    for (const Json& c : Json::parse(all_claims[r]))
      candidates.try_emplace({c[0].get<int64_t>(), parse_hex64(c[1].get<std::string>())}, static_cast<int>(r));

  for (auto candidate = candidates.rbegin(); candidate != candidates.rend(); ++candidate) {
    const auto& [claim, from] = *candidate;
    const auto have = mine.find(claim);
    const std::string text = comm.broadcast_text(have == mine.end() ? "" : have->second, from);
    const Manifest manifest = parse_manifest(text, step_name(claim.first));
    const fs::path dir = local / step_name(claim.first);
    // Other nodes' ranks know their directory by name; that the manifest is this one is its leader's word.
    const std::vector<std::string> who = comm.gather_text(have == mine.end() ? "" : "+");
    const bool here = !who[static_cast<size_t>(nodes.leader(nodes.mine))].empty();
    Json report = {{"whole", Json::array()}, {"faults", Json::array()}};
    const std::string problem = attempt([&] {
      if (!here) return;
      const Examined found = examine(manifest, dir, nodes);
      report["whole"] = found.whole;
      report["faults"] = found.faults;
    });
    if (!problem.empty()) report["faults"].push_back(problem);
    LocalStep step{.step = claim.first, .holders = std::vector<std::vector<int>>(manifest.files.size())};
    const std::vector<std::string> reports =
        comm.gather_text(report.dump(-1, ' ', false, Json::error_handler_t::replace));
    for (size_t r = 0; r < reports.size(); ++r) {
      const Json heard = Json::parse(reports[r]);
      for (const Json& f : heard["whole"]) step.holders[f.get<size_t>()].push_back(nodes.of[r]);
      for (const Json& fault : heard["faults"])
        notes.push_back(
            fmt::format("local tier, node {}: passed over a damaged file: {}", nodes.of[r], fault.get<std::string>()));
    }
    std::string missing;
    for (size_t f = 0; f < step.holders.size(); ++f)
      if (step.holders[f].empty()) missing += " " + manifest.files[f].name;
    if (!missing.empty()) {
      notes.push_back(fmt::format("local tier: step {} is not complete, no node has{}", step.step, missing));
      continue;
    }
    agree(comm, [&] {
      if (!leads || here) return;
      std::error_code error;
      make_directories(dir, error);
      if (error) fail(ErrorKind::runtime, "{}: creating it failed: {}", dir.string(), error.message());
      write_file_atomic(dir / kManifestName, text);
    });
    return step;
  }
  return {};
}

std::vector<int64_t> files_of(const Manifest& manifest, const std::vector<std::pair<std::string, Box>>& boxes) {
  std::map<std::string, const TensorRecord*> records;
  for (const TensorRecord& t : manifest.tensors) records[t.info.name] = &t;
  std::set<int64_t> files;
  for (const auto& [name, box] : boxes) {
    const auto record = records.find(name);
    if (record == records.end()) continue;  // whoever reads it says so
    for (const PieceRecord& piece : record->second->pieces)
      if (intersect(piece.box, box).size() > 0) files.insert(piece.file);
  }
  return {files.begin(), files.end()};
}

int64_t fetch_files(const fs::path& local, const LocalStep& found, const std::vector<int64_t>& needed, Comm& comm) {
  const Nodes nodes(comm);
  const fs::path dir = local / step_name(found.step);
  std::map<int, std::set<int64_t>> missing;  // by node
  const std::vector<std::string> lists = comm.gather_text(Json(needed).dump());
  for (size_t r = 0; r < lists.size(); ++r)
    for (const Json& entry : Json::parse(lists[r])) {
      const auto f = entry.get<int64_t>();
      const std::vector<int>& holders = found.holders[static_cast<size_t>(f)];
      if (std::find(holders.begin(), holders.end(), nodes.of[r]) == holders.end()) missing[nodes.of[r]].insert(f);
    }
  if (missing.empty()) return 0;

  Manifest manifest;
  agree(comm,
        [&] { manifest = parse_manifest(read_regular_file(dir / kManifestName), (dir / kManifestName).string()); });
  const std::vector<ExpectedFile> files = expected_files(manifest, dir);
  std::vector<std::unique_ptr<OutgoingFile>> out;
  std::vector<std::unique_ptr<IncomingFile>> in;
  std::vector<ExpectedFile> arrived;
  int64_t bytes = 0;
  agree(comm, [&] {
    for (const auto& [node, list] : missing)
      for (const int64_t f : list) {
        const ExpectedFile& file = files[static_cast<size_t>(f)];
        const int from = nodes.leader(found.holders[static_cast<size_t>(f)].front()), to = nodes.leader(node);
        bytes += file.record.bytes;
        if (comm.rank() == from) out.push_back(std::make_unique<OutgoingFile>(file.path, comm, to));
        if (comm.rank() != to) continue;
        arrived.push_back(file);
        arrived.back().path += ".incoming";
        in.push_back(std::make_unique<IncomingFile>(arrived.back().path, file.record.bytes, comm, from));
      }
  });
  for (const auto& file : in) file->start();
  for (const auto& file : out) file->start();
  for (const auto& file : in) file->wait();
  for (const auto& file : out) file->wait();
  in.clear();
  agree(comm, [&] {
    const std::vector<std::string> faults = file_faults(arrived, 1, nullptr);
    if (!faults.empty()) fail(ErrorKind::runtime, "damaged on the way between nodes: {}", faults.front());
    for (const ExpectedFile& file : arrived) {
      fsync_path(file.path);
      std::error_code error;
      fs::rename(file.path, dir / file.record.name, error);
      if (error) fail(ErrorKind::runtime, "{}: renaming it failed: {}", file.path.string(), error.message());
    }
    if (!arrived.empty()) fsync_path(dir);
  });
  return bytes;
}

}  // namespace rw
