// Who held the others up, from what each rank wrote before it gave up.
//
// A rank waits for those members of its failed operation's group that had not arrived there. It passes the blame on
// when it waited for others itself; who is waited for and waits for nobody is the culprit. A rank that wrote nothing is
// held, or gone.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/json.h"
#include "libcore/base/units.h"
#include "libcore/comm/watch.h"

namespace rw {
namespace {

constexpr size_t kNamed = 4;  // culprits, and ranks of a group, that a message spells out

struct SeenOp {
  std::string op, group, state, phase;
  int64_t sequence = 0, bytes = 0, peer = -1, step = 0, micro_batch = -1;
  bool is_message() const { return peer >= 0; }
};

struct SeenGroup {
  std::vector<int64_t> ranks;
  std::vector<std::string> hosts;
  int64_t collectives = 0;
};

struct SeenRank {
  std::string host;
  std::map<std::string, SeenGroup> groups;
  std::vector<SeenOp> ops;
  const SeenOp* failed() const {  // the first: what followed came from that
    const auto it = std::find_if(ops.begin(), ops.end(), [](const SeenOp& o) { return o.state == "failed"; });
    return it == ops.end() ? nullptr : &*it;
  }
};
using SeenRanks = std::map<int64_t, SeenRank>;

SeenOp op_of(const Json& j, const std::string& where) {
  return {.op = json_string(j, "op", where),
          .group = json_string(j, "group", where),
          .state = json_string(j, "state", where),
          .phase = json_string(j, "phase", where, ""),
          .sequence = json_int(j, "sequence", where),
          .bytes = json_int(j, "bytes", where),
          .peer = json_int(j, "peer", where, -1),
          .step = json_int(j, "step", where, 0),
          .micro_batch = json_int(j, "micro_batch", where, -1)};
}

SeenGroup group_of(const Json& j, const std::string& where) {
  SeenGroup group{.ranks = {},
                  .hosts = j.value("hosts", std::vector<std::string>()),
                  .collectives = json_int(j, "collectives", where)};
  const Json& ranks = j.at("ranks");
  if (ranks.is_array()) {
    group.ranks = ranks.get<std::vector<int64_t>>();
  } else {
    const int64_t start = json_int(ranks, "start", where), stride = json_int(ranks, "stride", where);
    for (int64_t i = 0; i < json_int(ranks, "size", where); ++i) group.ranks.push_back(start + i * stride);
  }
  if (group.hosts.size() > 1 && group.hosts.size() != group.ranks.size())
    fail(ErrorKind::input, "{}: {} hosts for {} ranks", where, group.hosts.size(), group.ranks.size());
  return group;
}

// A file that is not what write_watchdog writes is as good as none: the verdict is a help, not a step.
void read_rank(const std::filesystem::path& file, SeenRanks& ranks) {
  try {
    std::istringstream lines(read_file(file));
    std::string line;
    std::getline(lines, line);
    const std::string where = file.string();
    const Json who = parse_json(line, where);
    SeenRank r;
    r.host = json_string(who, "host", where);
    for (const Json& g : who.at("groups")) r.groups[json_string(g, "group", where)] = group_of(g, where);
    while (std::getline(lines, line)) {
      r.ops.push_back(op_of(parse_json(line, where), where));
      const auto group = r.groups.find(r.ops.back().group);
      if (group == r.groups.end() || r.ops.back().peer >= std::ssize(group->second.ranks)) return;
    }
    ranks[json_int(who, "rank", where)] = std::move(r);
  } catch (const std::exception&) {
  }
}

class Inquest {
 public:
  explicit Inquest(const SeenRanks& ranks) : ranks_(ranks) {
    for (const auto& [rank, seen] : ranks_) awaited_[rank] = find_awaited(rank);
  }

  std::string verdict() const {
    // Who accuses: of those that waited for the culprit, the one that waited for the fewest, since that is where the
    // others' waits come from.
    std::map<int64_t, std::pair<size_t, int64_t>> witness;  // culprit -> (number waited for, rank)
    for (const auto& [rank, seen] : ranks_) {
      const auto& missing = awaited(rank);
      for (int64_t member : missing) {
        if (ranks_.contains(member) && !awaited(member).empty()) continue;
        const auto mine = std::make_pair(missing.size(), rank);
        const auto [it, added] = witness.try_emplace(member, mine);
        if (!added) it->second = std::min(it->second, mine);
      }
    }
    std::vector<std::string> lines;
    for (const auto& [member, by] : witness)
      if (lines.size() < kNamed) lines.push_back(accuse(member, by.second));
    if (witness.size() > kNamed) lines.push_back(fmt::format("so did {} other ranks not", witness.size() - kNamed));
    if (lines.empty()) lines = circle();
    if (lines.empty()) lines = disagreement();
    std::string text;
    for (const std::string& line : lines) text += (text.empty() ? "" : "\n") + line;
    return text;
  }

 private:
  // The ranks that had not arrived where `rank` gave up.
  std::vector<int64_t> find_awaited(int64_t rank) const {
    const SeenRank& r = ranks_.at(rank);
    const SeenOp* op = r.failed();
    std::vector<int64_t> missing;
    if (!op) return missing;
    const SeenGroup& group = r.groups.at(op->group);
    for (size_t i = 0; i < group.ranks.size(); ++i) {
      const int64_t member = group.ranks[i];
      if (member == rank || (op->is_message() && static_cast<int64_t>(i) != op->peer)) continue;
      if (!arrived(member, rank, *op, group)) missing.push_back(member);
    }
    return missing;
  }

  // Of a rank that wrote a file.
  const std::vector<int64_t>& awaited(int64_t rank) const { return awaited_.at(rank); }

  static std::string spell(const SeenGroup& group) {
    std::string text;
    for (size_t i = 0; i < std::min(group.ranks.size(), 2 * kNamed); ++i)
      text += (i ? "," : "") + std::to_string(group.ranks[i]);
    return group.ranks.size() > 2 * kNamed ? fmt::format("{{{},...}} ({} ranks)", text, group.ranks.size())
                                           : "{" + text + "}";
  }
  static std::string when(const SeenOp& op) {
    std::string text = fmt::format("step {}", op.step);
    if (!op.phase.empty()) text += ", " + op.phase;
    if (op.micro_batch >= 0) text += fmt::format(", micro-batch {}", op.micro_batch);
    return text;
  }
  std::string name(int64_t rank) const { return fmt::format("rank {} (host {})", rank, host_of(rank)); }
  std::string host_of(int64_t rank) const {
    if (ranks_.contains(rank)) return ranks_.at(rank).host;
    for (const auto& [other, seen] : ranks_)
      for (const auto& [group_name, group] : seen.groups) {
        const auto it = std::find(group.ranks.begin(), group.ranks.end(), rank);
        if (it == group.ranks.end() || group.hosts.empty()) continue;
        return group.hosts[group.hosts.size() == 1 ? 0 : static_cast<size_t>(it - group.ranks.begin())];
      }
    return "unknown";
  }
  static std::string describe(const SeenOp& op, const SeenGroup& group) {
    return fmt::format("{} #{} of {} group {}, {}, {}", op.op, op.sequence, op.group, spell(group),
                       format_bytes(static_cast<double>(op.bytes)), when(op));
  }

  bool arrived(int64_t member, int64_t rank, const SeenOp& op, const SeenGroup& group) const {
    const auto it = ranks_.find(member);
    if (it == ranks_.end()) return false;
    const auto theirs = it->second.groups.find(op.group);
    if (theirs == it->second.groups.end() || theirs->second.ranks != group.ranks) return false;
    if (!op.is_message()) return theirs->second.collectives > op.sequence;
    const char* other_end = op.op == "send" ? "recv" : "send";
    return std::any_of(it->second.ops.begin(), it->second.ops.end(), [&](const SeenOp& o) {
      return o.op == other_end && o.group == op.group && o.sequence >= op.sequence &&
             group.ranks[static_cast<size_t>(o.peer)] == rank;
    });
  }

  // What `witness` knows of the member it waited for.
  std::string accuse(int64_t member, int64_t witness) const {
    const SeenRank& w = ranks_.at(witness);
    const SeenOp& op = *w.failed();
    const SeenGroup& group = w.groups.at(op.group);
    std::string text = name(member);
    if (op.is_message())
      text += fmt::format(" did not {} what {} waited for: {}", op.op == "send" ? "receive" : "send", name(witness),
                          describe(op, group));
    else text += " did not arrive at " + describe(op, group);
    const auto it = ranks_.find(member);
    const auto& ops = it == ranks_.end() ? w.ops : it->second.ops;
    for (auto o = ops.rbegin(); o != ops.rend(); ++o) {
      if (o->state != "done") continue;
      if (it != ranks_.end()) return text + "; it last finished " + describe(*o, it->second.groups.at(o->group));
      // Of a rank that wrote nothing the witness knows what they did together.
      if (o->group == op.group && o->is_message() == op.is_message() && o->peer == op.peer)
        return text +
               fmt::format(
                   "; it took part in {} #{} of that group ({}) and wrote no file: it is held elsewhere, or gone",
                   o->op, o->sequence, when(*o));
    }
    return text +
           (it == ranks_.end() ? "; it wrote no file: it is held elsewhere, or gone" : "; it finished nothing before");
  }

  // Ranks that wait for each other: they do the same things in different orders.
  std::vector<std::string> circle() const {
    for (const auto& [first, seen] : ranks_) {
      std::vector<std::string> lines;
      std::vector<int64_t> path;
      int64_t at = first;
      while (std::find(path.begin(), path.end(), at) == path.end()) {
        const auto& next = awaited(at);
        if (next.empty()) break;
        path.push_back(at);
        const SeenOp& op = *ranks_.at(at).failed();
        const SeenGroup& group = ranks_.at(at).groups.at(op.group);
        lines.push_back(fmt::format("{} waits for rank {} at {}", name(at), next[0], describe(op, group)));
        at = next[0];
      }
      if (!path.empty() && at == first) return lines;
    }
    return {};
  }

  // Ranks that called different things under one number.
  std::vector<std::string> disagreement() const {
    for (const auto& [rank, seen] : ranks_) {
      const SeenOp* op = seen.failed();
      if (!op || op->is_message()) continue;
      const SeenGroup& group = seen.groups.at(op->group);
      for (int64_t member : group.ranks) {
        if (!ranks_.contains(member)) continue;
        for (const SeenOp& o : ranks_.at(member).ops)
          if (!o.is_message() && o.group == op->group && o.sequence == op->sequence &&
              (o.op != op->op || o.bytes != op->bytes))
            return {fmt::format("{} called {}; {} called {} of {} instead", name(rank), describe(*op, group),
                                name(member), o.op, format_bytes(static_cast<double>(o.bytes)))};
      }
    }
    return {};
  }

  const SeenRanks& ranks_;
  std::map<int64_t, std::vector<int64_t>> awaited_;
};

}  // namespace

std::string watchdog_verdict(const std::filesystem::path& dir, int64_t ranks) {
  SeenRanks seen;
  for (int64_t r = 0; r < ranks; ++r) read_rank(dir / ("rank-" + std::to_string(r) + ".jsonl"), seen);
  return Inquest(seen).verdict();
}

}  // namespace rw
