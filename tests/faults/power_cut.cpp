#include "tests/faults/power_cut.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "libcore/base/hash.h"
#include "tests/faults/disk_tree.h"

namespace faults {

namespace {

namespace fs = std::filesystem;

// What an operation reports as committed, if it does: a line of events.jsonl, or of save_writer's file.
Saved reported(const Operation& o) {
  if (o.op != Op::write) return {};
  if (o.path.ends_with("/committed")) {
    std::istringstream line(o.data);
    Saved saved;
    line >> saved.step >> saved.version;
    return saved;
  }
  if (!o.path.ends_with("/events.jsonl")) return {};
  Saved newest;
  std::istringstream lines(o.data);
  for (std::string line; std::getline(lines, line);) {
    const auto event = nlohmann::json::parse(line, nullptr, false);
    if (event.is_object() && event.value("event", "") == "checkpoint")
      newest = std::max(newest, Saved{event.value("step", int64_t{-1}), 0});
  }
  return newest;
}

uint64_t digest_of(const Tree& tree, const Saved& committed) {
  uint64_t digest = static_cast<uint64_t>(committed.step * 64 + committed.version);
  for (const auto& [path, content] : tree)
    digest = rw::hash64(path, digest) * 31 + (content == nullptr ? 7 : content->digest);
  return digest;
}

std::string cut_text(const Cut& cut) {
  constexpr const char* kData[] = {"dropped", "all", "sectors"};
  constexpr const char* kEntries[] = {"dropped", "all", "in order", "any"};
  return fmt::format("unsynced data: {} of {} bytes, entries: {}, seed {}", kData[static_cast<int>(cut.data)],
                     cut.sector, kEntries[static_cast<int>(cut.entries)], cut.seed);
}

std::vector<Cut> cuts_of(const CutPlan& plan, size_t prefix) {
  using Data = Cut::Data;
  using Entries = Cut::Entries;
  std::vector<Cut> cuts = {{Data::dropped, Entries::dropped},
                           {Data::all, Entries::all},
                           {Data::dropped, Entries::all},
                           {Data::all, Entries::dropped}};
  for (int i = 0; i < plan.random_cuts; ++i) {
    cuts.push_back({i % 4 == 3 ? Data::dropped : Data::sectors, i % 2 == 0 ? Entries::any : Entries::in_order,
                    i % 4 < 2 ? 512 : 4096, plan.seed * 1'000'003 + prefix * 64 + static_cast<size_t>(i)});
  }
  return cuts;
}

// Empty, or what is wrong with what a resume finds.
std::string fault_of(const Recording& recording, const Recovery& recovery, const Saved& committed) {
  if (!recovery.error.empty()) return fmt::format("resume fails: {}", recovery.error);
  if (recovery.step < 0) return committed.step < 0 ? "" : fmt::format("begins anew{}", recovery.notes);
  Saved found;
  for (const auto& [saved, expected] : recording.saved)
    if (saved.step == recovery.step && expected == recovery.tensors) found = saved;
  if (found.step < 0) return fmt::format("step {} is not what was saved", recovery.step);
  if (found < committed) return fmt::format("found step {} version {}{}", found.step, found.version, recovery.notes);
  return "";
}

// Without what lies in `directory`.
Tree without(const Tree& tree, const std::string& directory) {
  Tree rest;
  for (const auto& [path, content] : tree)
    if (path != directory && !path.starts_with(directory + "/")) rest.emplace(path, content);
  return rest;
}

}  // namespace

CutReport cut_everywhere(const Recording& recording, const CutPlan& plan) {
  CrashModel model(recording.root, recording.before);
  DiskTree disk(plan.scratch);
  CutReport report;
  Saved committed = recording.committed;
  std::set<uint64_t> seen;
  const auto& operations = recording.operations;
  for (size_t n = 0; n <= operations.size(); ++n) {
    if (n > 0) {
      model.apply(operations[n - 1]);
      const Saved now = reported(operations[n - 1]);
      if (now > committed) ++report.n_commits;
      committed = std::max(committed, now);
    }
    for (const Cut& cut : cuts_of(plan, n)) {
      Tree tree = model.after(cut);
      if (!plan.one_lost.empty()) tree = without(tree, plan.one_lost[(n + cut.seed) % plan.one_lost.size()]);
      if (!seen.insert(digest_of(tree, committed)).second) continue;
      disk.become(tree);
      ++report.n_states;
      const Recovery recovery = recover(plan.scratch, recording.place);
      std::string fault = fault_of(recording, recovery, committed);
      if (fault.empty() && recovery.step >= 0 && plan.visit) fault = plan.visit(report.n_states, plan.scratch);
      if (!recording.place.local.empty()) disk.forget();
      ++(!fault.empty() ? report.n_wrong : recovery.step < 0 ? report.n_fresh : report.n_recovered);
      if (fault.empty() || report.wrong.size() >= 5) continue;
      report.wrong.push_back(fmt::format("after operation {} ({}), committed step {} version {}, {}: {}", n,
                                         n == 0 ? "none" : op_name(operations[n - 1].op) + " " + operations[n - 1].path,
                                         committed.step, committed.version, cut_text(cut), fault));
    }
  }
  if (model.n_unknown() > 0) {
    ++report.n_wrong;
    report.wrong.push_back(fmt::format("{} operations of the record are not understood", model.n_unknown()));
  }
  return report;
}

}  // namespace faults
