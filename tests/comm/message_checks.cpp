// Messages: any number under way, of any size, in order, from any memory, to others and to oneself.
#include <algorithm>
#include <random>

#include "tests/comm/check_tools.h"
#include "tests/comm/comm_checks.h"

namespace rw::checks {
namespace {

int64_t word(int from, int to, int64_t number, int64_t i) { return (from * 31 + to * 17 + number * 7 + i * 3) % 1009; }

void fill(Guarded<int64_t>& x, int64_t n, int from, int to, int64_t number) {
  for (int64_t i = 0; i < n; ++i) x[i] = word(from, to, number, i);
}
void check(Guarded<int64_t>& x, int64_t n, int from, int to, int64_t number) {
  for (int64_t i = 0; i < n; ++i)
    expect(x[i] == word(from, to, number, i), "message {} of {} words from {} to {}: word {} is {}", number, n, from,
           to, i, x[i]);
  x.check("message");
}

}  // namespace

void messages(Comm& comm) {
  const int ranks = comm.size(), me = comm.rank();
  if (ranks == 1) return;
  // Around the ring: rank 0 sends first, the others pass on what they got; 1.1 MB exceeds every buffer on the way.
  for (int64_t n : kSizes) {
    std::vector<int64_t> x(static_cast<size_t>(n), -1);
    if (me == 0)
      for (int64_t i = 0; i < n; ++i) x[static_cast<size_t>(i)] = value(5, i);
    if (me > 0) comm.recv(x.data(), n * 8, me - 1, 3);
    for (int64_t i = 0; i < n && me > 0; ++i)
      expect(x[static_cast<size_t>(i)] == value(5, i), "message of {}: element {}", n, i);
    comm.send(x.data(), n * 8, (me + 1) % ranks, 3);
    if (me == 0) comm.recv(x.data(), n * 8, ranks - 1, 3);
    for (int64_t i = 0; i < n; ++i) expect(x[static_cast<size_t>(i)] == value(5, i), "message of {}: element {}", n, i);
  }
  // Every pair both ways, several small messages lying in wait, in order.
  for (int m = 0; m < 5; ++m)
    for (int peer = 0; peer < ranks; ++peer) {
      const int64_t out = me * 100 + peer * 10 + m;
      comm.send(&out, 8, peer, m);
    }
  for (int peer = 0; peer < ranks; ++peer)
    for (int m = 0; m < 5; ++m) {
      int64_t in = -1;
      comm.recv(&in, 8, peer, m);
      expect(in == peer * 100 + me * 10 + m, "message {} from {}: {}", m, peer, in);
    }
  comm.barrier();
}

// Every pair, itself included, both ways at once, many times what the ring holds, from private and shared memory in
// other mixes at each end, waited for in any order.
void messages_in_flight(Comm& comm) {
  const int ranks = comm.size(), me = comm.rank();
  constexpr int kMessages = 7;
  std::mt19937 own(static_cast<uint32_t>(99 + me));
  const auto size_of = [](int from, int to, int m) {
    const int64_t sizes[] = {40000, 0, 1, 5000, 3, 16411, 2048};
    return sizes[(m + from * 2 + to) % 7];
  };
  struct Message {
    Guarded<int64_t> x;
    Request request;
    int from, to, number;
    bool out;
  };
  for (int round = 0; round < 3; ++round) {
    std::vector<Message> messages;
    for (int m = 0; m < kMessages; ++m)
      for (int distance = 0; distance < ranks; ++distance)
        for (bool out : {true, false}) {
          const int from = out ? me : (me + distance) % ranks, to = out ? (me + distance) % ranks : me;
          messages.push_back({Guarded<int64_t>(comm, 40000, (m + round + out) % 3 == 0), {}, from, to, m, out});
          if (out) fill(messages.back().x, size_of(from, to, m), from, to, m);
        }
    // All sends first, all receives first, or as they come: no order of starts may block.
    for (int pass = 0; pass < 2; ++pass)
      for (Message& m : messages) {
        const int64_t bytes = size_of(m.from, m.to, m.number) * 8;
        const bool now = round == 2 ? pass == 0 : m.out == (pass == round);
        if (!now) continue;
        m.request = m.out ? comm.send_start(m.x.data(), bytes, m.to, m.number)
                          : comm.recv_start(m.x.data(), bytes, m.from, m.number);
        if (own() % 4 == 0) comm.progress();
      }
    if (round == 1) comm.barrier();  // other operations pass messages under way
    std::vector<size_t> order(messages.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), own);
    for (size_t i : order) {
      Message& m = messages[i];
      comm.wait(m.request);
      expect(comm.done(m.request), "a message that was waited for is done");
      if (!m.out) check(m.x, size_of(m.from, m.to, m.number), m.from, m.to, m.number);
    }
    comm.barrier();
  }
}

// Two ranks that send each other more than any buffer holds, and done() that turns true by progress() alone.
void swaps(Comm& comm) {
  const int ranks = comm.size(), me = comm.rank(), peer = ranks - 1 - me;
  constexpr int64_t kWords = 200003;
  for (bool shared : {false, true}) {
    Guarded<int64_t> out(comm, kWords, shared), in(comm, kWords, !shared);
    fill(out, kWords, me, peer, 1);
    const Request sent = comm.send_start(out.data(), kWords * 8, peer, 1);
    const Request received = comm.recv_start(in.data(), kWords * 8, peer, 1);
    while (!comm.done(sent) || !comm.done(received)) comm.progress();
    comm.wait(sent);
    comm.wait(received);
    check(in, kWords, peer, me, 1);
    comm.barrier();
  }
  comm.wait({});
  expect(comm.done({}), "a default request is done");
}

// A rank's messages to itself: sends may be waited for, and the memory used again, before the receive starts.
void messages_to_oneself(Comm& comm) {
  const int me = comm.rank();
  constexpr int64_t kWords = 100003;
  Guarded<int64_t> x(comm, kWords, false), y(comm, kWords, true);
  fill(x, kWords, me, me, 1);
  comm.send(x.data(), kWords * 8, me, 1);
  fill(x, kWords, me, me, 2);
  const Request second = comm.send_start(x.data(), kWords * 8, me, 2);
  comm.recv(y.data(), kWords * 8, me, 1);
  check(y, kWords, me, me, 1);
  const Request third = comm.recv_start(y.data(), kWords * 8, me, 2);
  comm.wait(third);
  comm.wait(second);
  check(y, kWords, me, me, 2);
  const Request early = comm.recv_start(y.data(), 8, me, 0);
  expect(!comm.done(early), "a receive that nothing was sent for is not done");
  fill(x, 1, me, me, 3);
  comm.send(x.data(), 8, me, 0);
  comm.wait(early);
  check(y, 1, me, me, 3);
  comm.send(nullptr, 0, me, 5);
  comm.recv(nullptr, 0, me, 5);
  comm.barrier();
}

}  // namespace rw::checks
