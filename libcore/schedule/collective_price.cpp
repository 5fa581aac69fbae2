// Step lists as an event simulation: every rank runs its list as an executor does, a message begins when both its ends
// have started it and the sender's way out and the receiver's way in are free (first come, first served).
#include <algorithm>
#include <deque>
#include <map>
#include <queue>

#include "libcore/base/check.h"
#include "libcore/schedule/collective.h"

namespace rw {
namespace {

struct Message {
  int from, to;
  size_t sender_step, receiver_step;
};

// Something that ends or could begin at a time. Equal times go in the order in which they became known.
struct Event {
  double time;
  int64_t order;
  enum class What : uint8_t { message_ready, message_end, node_end } what;
  size_t index;
  bool operator>(const Event& o) const { return time != o.time ? time > o.time : order > o.order; }
};

// The k-th node step of a node's ranks.
struct NodeStep {
  std::vector<std::pair<int, size_t>> members;  // rank, step: those who started it
};

class Simulation {
 public:
  Simulation(const std::vector<StepList>& lists, const PriceTerms& terms) : lists_(lists), terms_(terms) {
    ranks_.resize(lists.size());
    if (terms.nodes == nullptr) return;
    node_sizes_.resize(terms.nodes->leaders.size());
    for (int32_t node : terms.nodes->node_of) ++node_sizes_[static_cast<size_t>(node)];
    node_steps_of_.resize(node_sizes_.size());
  }

  double run() {
    for (int r = 0; r < static_cast<int>(lists_.size()); ++r) start_steps(r, 0);
    double now = 0;
    while (!events_.empty()) {
      const Event e = events_.top();
      events_.pop();
      switch (e.what) {
        case Event::What::message_ready: begin_message(e.index, e.time); break;
        case Event::What::message_end: {
          const Message m = messages_[e.index];
          now = e.time;
          end_half(m.from, m.sender_step, now);
          end_half(m.to, m.receiver_step, now);
          break;
        }
        case Event::What::node_end: {
          now = e.time;
          for (const auto& [r, step] : std::vector(node_steps_[e.index].members)) end_half(r, step, now);
          break;
        }
      }
    }
    for (size_t r = 0; r < lists_.size(); ++r)
      CHECK(ranks_[r].running.empty() && ranks_[r].next == lists_[r].size(), "rank %zu stays at step %zu of %zu", r,
            ranks_[r].next, lists_[r].size());
    return now;
  }

 private:
  struct Running {
    size_t step;
    int open;  // halves that are not done; a node step has one
  };
  struct Ends {
    std::deque<size_t> senders, receivers;  // steps whose other end has not come
  };
  struct Rank {
    size_t next = 0;               // the first that has not started
    std::vector<Running> running;  // in the order of the list
    double out_free = 0, in_free = 0;
    std::map<int, Ends> messages_from;  // by sender
    size_t node_steps = 0;              // started
  };

  Rank& rank(int r) { return ranks_[static_cast<size_t>(r)]; }
  const CollectiveStep& step(int r, size_t i) const { return lists_[static_cast<size_t>(r)][i]; }
  void push(double time, Event::What what, size_t index) { events_.push({time, n_events_++, what, index}); }

  void start_steps(int r, double now) {
    Rank& me = rank(r);
    while (me.next < lists_[static_cast<size_t>(r)].size() && me.running.size() < kStepsAhead) {
      const size_t i = me.next;
      const CollectiveStep& s = step(r, i);
      for (const Running& earlier : me.running)
        if (starts_after(s, step(r, earlier.step))) return;
      ++me.next;
      if (s.kind != StepKind::exchange) {
        me.running.push_back({i, 1});
        join_node(r, i, now);
        continue;
      }
      me.running.push_back({i, (s.to >= 0) + (s.from >= 0)});
      if (s.to >= 0) rank(s.to).messages_from[r].senders.push_back(i), match(r, s.to, now);
      if (s.from >= 0) me.messages_from[s.from].receivers.push_back(i), match(s.from, r, now);
    }
  }

  void match(int from, int to, double now) {
    Ends& ends = rank(to).messages_from[from];
    if (ends.senders.empty() || ends.receivers.empty()) return;
    messages_.push_back({from, to, ends.senders.front(), ends.receivers.front()});
    ends.senders.pop_front();
    ends.receivers.pop_front();
    push(now, Event::What::message_ready, messages_.size() - 1);
  }

  void begin_message(size_t index, double now) {
    const Message& m = messages_[index];
    const double free = std::max(rank(m.from).out_free, rank(m.to).in_free);
    if (free > now) return push(free, Event::What::message_ready, index);
    const WireCost wire = terms_.wire(m.from, m.to);
    const double end = now + wire.alpha_s + bytes(step(m.from, m.sender_step).send) * wire.s_per_byte;
    rank(m.from).out_free = rank(m.to).in_free = end;
    push(end, Event::What::message_end, index);
  }

  double bytes(const ElementRange& r) const { return static_cast<double>(r.n) * terms_.bytes_per_element; }

  void join_node(int r, size_t i, double now) {
    CHECK(terms_.nodes != nullptr, "a node step without nodes");
    const auto node = static_cast<size_t>(terms_.nodes->node_of[static_cast<size_t>(r)]);
    const size_t k = rank(r).node_steps++;
    if (k == node_steps_of_[node].size()) {
      node_steps_of_[node].push_back(node_steps_.size());
      node_steps_.emplace_back();
    }
    const size_t index = node_steps_of_[node][k];
    node_steps_[index].members.push_back({r, i});
    if (node_steps_[index].members.size() == node_sizes_[node])
      push(now + terms_.node.alpha_s + bytes(step(r, i).receive) * terms_.node.s_per_byte, Event::What::node_end,
           index);
  }

  void end_half(int r, size_t i, double now) {
    Rank& me = rank(r);
    for (Running& running : me.running)
      if (running.step == i) --running.open;
    // Elements that arrived early are added when what comes before them is done.
    for (size_t k = 0; k < me.running.size();) {
      bool done = me.running[k].open == 0;
      for (size_t e = 0; e < k; ++e)
        done = done && !adds_after(step(r, me.running[k].step), step(r, me.running[e].step));
      if (done) me.running.erase(me.running.begin() + static_cast<std::ptrdiff_t>(k));
      else ++k;
    }
    start_steps(r, now);
  }

  const std::vector<StepList>& lists_;
  const PriceTerms& terms_;
  std::vector<Rank> ranks_;
  std::vector<Message> messages_;
  std::vector<size_t> node_sizes_;                  // (nodes)
  std::vector<std::vector<size_t>> node_steps_of_;  // (nodes) -> node_steps_
  std::vector<NodeStep> node_steps_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  int64_t n_events_ = 0;
};

}  // namespace

double price_steps(const std::vector<StepList>& of_rank, const PriceTerms& terms) {
  return Simulation(of_rank, terms).run();
}

double price_steps(const std::vector<StepList>& of_rank, double bytes_per_element, WireCost wire) {
  PriceTerms terms{.bytes_per_element = bytes_per_element};
  terms.wire = [wire](int, int) { return wire; };
  return price_steps(of_rank, terms);
}

}  // namespace rw
