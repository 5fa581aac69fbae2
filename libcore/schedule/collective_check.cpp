// Proof of step lists: a machine of p ranks that runs them under the strictest terms, with symbols for data. A symbol
// is a rank's input or the ordered sum of two symbols; equal sums are one symbol, so that equal numbers mean equal
// bits.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <unordered_map>

#include "libcore/schedule/collective.h"

namespace rw {
namespace {

using Symbol = int32_t;
constexpr Symbol kNothing = -1;  // never written, or scratch

struct Run {
  int32_t begin, end;  // ranks
};
using Ranks = std::vector<Run>;  // ascending, apart

// Whose inputs a symbol holds. The sets of rings and trees are few runs of ranks each.
class Symbols {
 public:
  explicit Symbols(int ranks) {
    for (int32_t r = 0; r < ranks; ++r) of_.push_back({{r, r + 1}});
  }
  const Ranks& ranks(Symbol s) const { return of_[static_cast<size_t>(s)]; }
  // kNothing when a rank is in both.
  Symbol sum(Symbol left, Symbol right) {
    const uint64_t key = static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
    const auto it = sums_.find(key);
    if (it != sums_.end()) return it->second;
    Ranks both, merged;
    std::merge(ranks(left).begin(), ranks(left).end(), ranks(right).begin(), ranks(right).end(),
               std::back_inserter(both), [](const Run& a, const Run& b) { return a.begin < b.begin; });
    for (const Run& r : both) {
      if (!merged.empty() && r.begin < merged.back().end) return kNothing;
      if (!merged.empty() && r.begin == merged.back().end) merged.back().end = r.end;
      else merged.push_back(r);
    }
    of_.push_back(std::move(merged));
    return sums_[key] = static_cast<Symbol>(of_.size() - 1);
  }
  bool is_whole(Symbol s, int p) const {
    return s != kNothing && ranks(s).size() == 1 && ranks(s)[0].begin == 0 && ranks(s)[0].end == p;
  }

 private:
  std::vector<Ranks> of_;
  std::unordered_map<uint64_t, Symbol> sums_;
};

class Machine {
 public:
  Machine(const CollectiveGoal& goal, const std::vector<StepList>& of_rank)
      : goal_(goal), lists_(of_rank), p_(static_cast<int>(of_rank.size())), symbols_(p_) {}

  std::string run() {
    if (goal_.cuts.size() != static_cast<size_t>(p_) + 1)
      return fmt::format("{} cuts for {} ranks", goal_.cuts.size(), p_);
    if (!find_atoms()) return error_;
    fill();
    for (int r = 0; r < p_; ++r) look_.push_back(r);
    while (!look_.empty() && error_.empty()) {
      const int r = look_.front();
      look_.pop_front();
      advance(r);
    }
    if (error_.empty()) expect_all_done();
    if (error_.empty()) expect_goal();
    return error_;
  }

 private:
  struct At {
    size_t step = 0;
    bool sent = false, received = false;
    std::vector<Symbol> inbox;
  };

  // The data is cut wherever a range begins or ends: between two cuts all elements fare alike.
  bool find_atoms() {
    const int64_t n = goal_.cuts.back();
    edges_.assign(goal_.cuts.begin(), goal_.cuts.end());
    edges_.push_back(0);
    for (int r = 0; r < p_; ++r)
      for (const CollectiveStep& s : lists_[static_cast<size_t>(r)])
        for (const ElementRange& range : {s.send, s.receive}) {
          if (range.begin < 0 || range.n < 0 || range.end() > n) {
            error_ = fmt::format("rank {}: elements [{}, {}) of {}", r, range.begin, range.end(), n);
            return false;
          }
          if (range.n > 0) edges_.insert(edges_.end(), {range.begin, range.end()});
        }
    std::sort(edges_.begin(), edges_.end());
    edges_.erase(std::unique(edges_.begin(), edges_.end()), edges_.end());
    return true;
  }
  size_t atom(int64_t element) const {
    return static_cast<size_t>(std::lower_bound(edges_.begin(), edges_.end(), element) - edges_.begin());
  }

  void fill() {
    const size_t atoms = edges_.size() - 1;
    at_.resize(static_cast<size_t>(p_));
    data_.assign(static_cast<size_t>(p_), std::vector<Symbol>(atoms, kNothing));
    for (int r = 0; r < p_; ++r) {
      const bool part = goal_.kind == CollectiveKind::all_gather;
      const size_t begin = part ? atom(goal_.cuts[static_cast<size_t>(r)]) : 0;
      const size_t end = part ? atom(goal_.cuts[static_cast<size_t>(r) + 1]) : atoms;
      std::fill(data(r).begin() + static_cast<std::ptrdiff_t>(begin),
                data(r).begin() + static_cast<std::ptrdiff_t>(end), r);
    }
  }

  std::vector<Symbol>& data(int r) { return data_[static_cast<size_t>(r)]; }
  At& at(int r) { return at_[static_cast<size_t>(r)]; }
  bool is_done(int r) { return at(r).step == lists_[static_cast<size_t>(r)].size(); }
  const CollectiveStep& step(int r) { return lists_[static_cast<size_t>(r)][at(r).step]; }
  std::string name(int r) { return fmt::format("rank {} step {}", r, at(r).step); }

  void advance(int r) {
    while (error_.empty() && !is_done(r)) {
      if (step(r).kind != StepKind::exchange) {
        node_step(r);
        return;  // the last of its node to come looks at all of them again
      }
      const CollectiveStep& s = step(r);
      if (!check_exchange(r, s)) return;
      if (s.to >= 0) meet(r, s.to);
      if (s.from >= 0 && error_.empty()) meet(s.from, r);
      if (!error_.empty() || !complete(r)) return;
      for (int peer : {s.to, s.from})
        if (peer >= 0) look_.push_back(peer);
    }
  }

  bool check_exchange(int r, const CollectiveStep& s) {
    for (const auto& [peer, range] : {std::pair{s.to, s.send}, std::pair{s.from, s.receive}})
      if (peer >= p_ || peer == r || (peer < 0) != (range.n == 0))
        error_ = fmt::format("{}: {} elements with rank {}", name(r), range.n, peer);
    if (s.arrival == OnArrival::copy && s.send.touches(s.receive))
      error_ = fmt::format("{}: elements [{}, {}) are overwritten while they are sent", name(r), s.receive.begin,
                           s.receive.end());
    return error_.empty();
  }

  // The message between what both do now, if they are there.
  void meet(int from, int to) {
    if (is_done(from) || is_done(to)) return;
    const CollectiveStep &s = step(from), &t = step(to);
    if (s.kind != StepKind::exchange || t.kind != StepKind::exchange || s.to != to || t.from != from || at(from).sent ||
        at(to).received)
      return;
    if (s.send.n != t.receive.n) {
      error_ = fmt::format("{} sends {} elements, {} expects {}", name(from), s.send.n, name(to), t.receive.n);
      return;
    }
    // Positions may differ only if both sides say so, which no algorithm here does.
    if (s.send.begin != t.receive.begin) {
      error_ = fmt::format("{} sends elements from {}, {} expects them from {}", name(from), s.send.begin, name(to),
                           t.receive.begin);
      return;
    }
    const auto begin = data(from).begin();
    at(to).inbox.assign(begin + static_cast<std::ptrdiff_t>(atom(s.send.begin)),
                        begin + static_cast<std::ptrdiff_t>(atom(s.send.end())));
    for (Symbol symbol : at(to).inbox)
      if (symbol == kNothing) error_ = fmt::format("{} sends elements that it does not have", name(from));
    at(from).sent = at(to).received = true;
    look_.push_back(from);
    look_.push_back(to);
  }

  bool complete(int r) {
    const CollectiveStep& s = step(r);
    At& here = at(r);
    if ((s.to >= 0 && !here.sent) || (s.from >= 0 && !here.received)) return false;
    for (size_t i = 0; i < here.inbox.size(); ++i) {
      Symbol& mine = data(r)[atom(s.receive.begin) + i];
      const Symbol got = here.inbox[i];
      mine = s.arrival == OnArrival::copy ? got
                                          : add(r, s.arrival == OnArrival::received_first ? got : mine,
                                                s.arrival == OnArrival::received_first ? mine : got);
    }
    here.inbox.clear();
    here.sent = here.received = false;
    ++here.step;
    return error_.empty();
  }

  Symbol add(int r, Symbol left, Symbol right) {
    if (left == kNothing || right == kNothing) {
      error_ = fmt::format("{} adds elements that it does not have", name(r));
      return kNothing;
    }
    const Symbol sum = symbols_.sum(left, right);
    if (sum == kNothing) error_ = fmt::format("{} adds the contribution of a rank twice", name(r));
    return sum;
  }

  void node_step(int r) {
    if (goal_.nodes == nullptr) {
      error_ = fmt::format("{}: a node step without nodes", name(r));
      return;
    }
    const auto& node_of = goal_.nodes->node_of;
    const CollectiveStep s = step(r);
    std::vector<int> members;
    for (int q = 0; q < p_; ++q)
      if (node_of[static_cast<size_t>(q)] == node_of[static_cast<size_t>(r)]) members.push_back(q);
    for (int q : members)
      if (is_done(q) || step(q).kind == StepKind::exchange) return;
    for (int q : members)
      if (!(step(q) == s)) {
        error_ = fmt::format("{} and {} do different node steps", name(r), name(q));
        return;
      }
    for (size_t i = atom(s.receive.begin); i < atom(s.receive.end()) && s.receive.n > 0; ++i) {
      Symbol first = data(members[0])[i];
      for (size_t k = 1; k < members.size(); ++k) {
        Symbol& other = data(members[k])[i];
        if (s.kind == StepKind::node_broadcast) other = first;
        else first = add(members[k], first, other), other = kNothing;
      }
      data(members[0])[i] = first;
    }
    for (int q : members) {
      ++at(q).step;
      look_.push_back(q);
    }
  }

  void expect_all_done() {
    for (int r = 0; r < p_; ++r) {
      if (is_done(r)) continue;
      const CollectiveStep& s = step(r);
      error_ = fmt::format("{} never ends (sends to {}, receives from {})", name(r), at(r).sent ? -1 : s.to,
                           at(r).received ? -1 : s.from);
      return;
    }
  }

  void expect_goal() {
    for (int r = 0; r < p_ && error_.empty(); ++r) {
      for (size_t i = 0; i + 1 < edges_.size(); ++i) {
        const auto after = std::upper_bound(goal_.cuts.begin(), goal_.cuts.end(), edges_[i]);
        const int owner = static_cast<int>(after - goal_.cuts.begin()) - 1;
        const Symbol found = data(r)[i];
        const bool right = goal_.kind == CollectiveKind::all_gather ? found == owner
                           : goal_.kind == CollectiveKind::reduce_scatter
                               ? owner != r || symbols_.is_whole(found, p_)
                               : symbols_.is_whole(found, p_) && found == data(0)[i];
        if (right) continue;
        error_ = fmt::format("rank {}, elements [{}, {}): {}", r, edges_[i], edges_[i + 1],
                             goal_.kind == CollectiveKind::all_gather ? "not the owner's"
                             : symbols_.is_whole(found, p_)           ? "added in another order than on rank 0"
                                                                      : "not every rank's contribution");
        break;
      }
    }
  }

  const CollectiveGoal& goal_;
  const std::vector<StepList>& lists_;
  int p_;
  Symbols symbols_;
  std::vector<int64_t> edges_;
  std::vector<std::vector<Symbol>> data_;  // (ranks)(atoms)
  std::vector<At> at_;
  std::deque<int> look_;
  std::string error_;
};

}  // namespace

std::string check_steps(const CollectiveGoal& goal, const std::vector<StepList>& of_rank) {
  return Machine(goal, of_rank).run();
}

}  // namespace rw
