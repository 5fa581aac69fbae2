// The watchdog's files: a line about the rank and its groups, then its last operations.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <system_error>

#include "libcore/base/clock.h"
#include "libcore/base/files.h"
#include "libcore/base/json.h"
#include "libcore/base/log.h"
#include "libcore/comm/watch.h"

namespace rw {
namespace {

const char* state_name(CommOp::State state) {
  switch (state) {
    case CommOp::State::started: return "started";
    case CommOp::State::done: return "done";
    case CommOp::State::failed: return "failed";
  }
  return "?";
}

// Groups are mostly start, stride, size; thousands of ranks each write this.
Json json_of(const std::vector<int>& ranks) {
  const int stride = ranks.size() > 1 ? ranks[1] - ranks[0] : 1;
  for (size_t i = 1; i < ranks.size(); ++i)
    if (ranks[i] - ranks[i - 1] != stride) return ranks;
  return {{"start", ranks.empty() ? 0 : ranks[0]}, {"stride", stride}, {"size", ranks.size()}};
}

Json json_of(const std::string& name, const CommGroup& group, int64_t rank) {
  const auto& hosts = group.hosts;
  const bool one_host = std::adjacent_find(hosts.begin(), hosts.end(), std::not_equal_to<>()) == hosts.end();
  Json j;
  j["group"] = name;
  j["ranks"] = json_of(group.ranks);
  // The first two members write all names: one of them is there unless both are lost.
  const auto tellers = std::min<std::ptrdiff_t>(2, std::ssize(group.ranks));
  if (one_host && !hosts.empty()) j["hosts"] = {hosts[0]};
  else if (std::count(group.ranks.begin(), group.ranks.begin() + tellers, rank) > 0) j["hosts"] = hosts;
  j["collectives"] = group.n_collectives;
  return j;
}

}  // namespace

std::string CommRecord::json_lines() const {
  const double now = now_s();
  std::string lines;
  for (int64_t i = std::max<int64_t>(0, n_ops - kKept); i < n_ops; ++i) {
    const CommOp& op = last[static_cast<size_t>(i % kKept)];
    Json j;
    j["op"] = comm_kind_name(op.kind);
    j["group"] = op.group;
    j["sequence"] = op.sequence;
    j["bytes"] = op.bytes;
    if (op.peer >= 0) j["peer"] = op.peer;
    j["state"] = state_name(op.state);
    j["seconds"] = (op.state == CommOp::State::started ? now : op.end_s) - op.start_s;
    j["phase"] = op.phase;
    j["step"] = op.step;
    if (op.micro_batch >= 0) j["micro_batch"] = op.micro_batch;
    lines += j.dump() + "\n";
  }
  return lines;
}

void write_watchdog(const CommRecord& record, const std::filesystem::path& dir) {
  const auto file = dir / ("rank-" + std::to_string(record.rank) + ".jsonl");
  try {
    Json who;
    who["rank"] = record.rank;
    who["host"] = record.host;
    who["groups"] = Json::array();
    for (const auto& [name, group] : record.groups) who["groups"].push_back(json_of(name, group, record.rank));
    std::error_code exists;
    std::filesystem::create_directories(dir, exists);
    write_file_atomic(file, who.dump() + "\n" + record.json_lines());
  } catch (const std::exception& e) {
    log_warning("the last operations of rank {} were not written to {}: {}", record.rank, file.string(), e.what());
  }
}

}  // namespace rw
