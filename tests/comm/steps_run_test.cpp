// The executor of step lists over ranks that are threads and messages that wait for their receiver (rendezvous): sums
// that are exact in every type, in the order the lists say, with several collectives under way.
#include "libcore/comm/steps_run.h"

#include <doctest/doctest.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

using namespace rw;

namespace {

// What the ranks of a job share: messages that are copied when both ends have come, and operations of a node that end
// when all its ranks have begun them.
class Switchboard {
 public:
  struct End {
    std::byte* data;
    int64_t bytes;
    bool* done;
  };
  void join(int from, int to, int tag, bool sends, End end) {
    const std::lock_guard lock(mutex_);
    auto& [senders, receivers] = wires_[{from, to, tag}];
    (sends ? senders : receivers).push_back(end);
    while (!senders.empty() && !receivers.empty()) {
      const End a = senders.front(), b = receivers.front();
      senders.pop_front();
      receivers.pop_front();
      if (a.bytes != b.bytes) throw std::runtime_error("a message of another size");
      if (a.bytes > 0) std::memcpy(b.data, a.data, static_cast<size_t>(a.bytes));
      *a.done = *b.done = true;
    }
  }
  // The k-th operation of a node. `all` in rank order.
  struct NodeOperation {
    std::vector<std::pair<int, std::byte*>> all;
    bool done = false;
  };
  void begin(int node, int64_t k, int members, std::pair<int, std::byte*> me,
             const std::function<void(std::vector<std::byte*>)>& run) {
    const std::lock_guard lock(mutex_);
    NodeOperation& op = nodes_[{node, k}];
    op.all.push_back(me);
    if (static_cast<int>(op.all.size()) < members) return;
    std::sort(op.all.begin(), op.all.end());
    std::vector<std::byte*> data;
    for (const auto& [rank, p] : op.all) data.push_back(p);
    run(data);
    op.done = true;
  }
  bool is_done(const bool& flag) {
    const std::lock_guard lock(mutex_);
    return flag;
  }
  bool node_done(int node, int64_t k) {
    const std::lock_guard lock(mutex_);
    return nodes_[{node, k}].done;
  }

 private:
  std::mutex mutex_;
  std::map<std::tuple<int, int, int>, std::pair<std::deque<End>, std::deque<End>>> wires_;
  std::map<std::pair<int, int64_t>, NodeOperation> nodes_;
};

class TestLink final : public StepLink {
 public:
  TestLink(Switchboard& board, int rank, int tag) : board_(board), rank_(rank), tag_(tag) {}
  int64_t start_send(const void* data, int64_t bytes, int peer) override {
    board_.join(rank_, peer, tag_, true, {const_cast<std::byte*>(static_cast<const std::byte*>(data)), bytes, flag()});
    return static_cast<int64_t>(done_.size()) - 1;
  }
  int64_t start_recv(void* data, int64_t bytes, int peer) override {
    board_.join(peer, rank_, tag_, false, {static_cast<std::byte*>(data), bytes, flag()});
    return static_cast<int64_t>(done_.size()) - 1;
  }
  bool test(int64_t id) override { return board_.is_done(done_[static_cast<size_t>(id)]); }

 private:
  bool* flag() { return &done_.emplace_back(false); }
  Switchboard& board_;
  int rank_, tag_;
  std::deque<bool> done_;  // stays in place as it grows
};

// Sums f32 in rank order to the first rank's data, or copies from it.
class TestNode final : public NodeLevel {
 public:
  TestNode(Switchboard& board, const NodeMap& nodes, int rank)
      : board_(board), rank_(rank), node_(nodes.node_of[static_cast<size_t>(rank)]) {
    for (int32_t other : nodes.node_of) members_ += other == node_;
  }
  int64_t plan_reduce(void* data, int64_t n, DType, ReduceOp) override { return plan(data, n * 4, true); }
  int64_t plan_broadcast(void* data, int64_t bytes) override { return plan(data, bytes, false); }
  void begin(int64_t id) override {
    const Plan& p = plans_[static_cast<size_t>(id)];
    board_.begin(node_, id, members_, {rank_, p.data}, [&p](const std::vector<std::byte*>& all) {
      for (size_t i = 0; i < static_cast<size_t>(p.bytes) / 4; ++i)
        for (size_t r = 1; r < all.size(); ++r) {
          float &first = reinterpret_cast<float*>(all[0])[i], &other = reinterpret_cast<float*>(all[r])[i];
          if (p.reduces) first += other, other = std::nanf("");
          else other = first;
        }
    });
  }
  bool test(int64_t id) override { return board_.node_done(node_, id); }

 private:
  struct Plan {
    std::byte* data;
    int64_t bytes;
    bool reduces;
  };
  int64_t plan(void* data, int64_t bytes, bool reduces) {
    plans_.push_back({static_cast<std::byte*>(data), bytes, reduces});
    return static_cast<int64_t>(plans_.size()) - 1;
  }
  Switchboard& board_;
  int rank_, node_, members_ = 0;
  std::deque<Plan> plans_;
};

// Runs body(rank) on threads; the first complaint of any of them.
std::string on_ranks(int ranks, const std::function<void(int)>& body) {
  std::mutex mutex;
  std::string first;
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      try {
        body(r);
      } catch (const std::exception& e) {
        const std::lock_guard lock(mutex);
        if (first.empty()) first = e.what();
      }
    });
  for (auto& t : threads) t.join();
  return first;
}

void expect(bool ok, const std::string& what) {
  if (!ok) throw std::runtime_error(what);
}

void finish(StepsRun& run) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!run.done()) {
    if (!run.step()) std::this_thread::yield();
    if (std::chrono::steady_clock::now() > end)
      throw std::runtime_error("not done, waits for rank " + std::to_string(run.pending_peer()));
  }
}

int64_t value(int rank, int64_t i) { return (i * 7 + rank * 5 + i * rank % 3) % 15 - 7; }

// Integers that are exact in every type; bf16 is the upper half of f32.
template <typename T>
T number(int64_t v) {
  if constexpr (std::is_same_v<T, uint16_t>)
    return static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(v)) >> 16);
  else return static_cast<T>(v);
}

template <typename T>
constexpr DType kType = std::is_same_v<T, float>      ? DType::f32
                        : std::is_same_v<T, double>   ? DType::f64
                        : std::is_same_v<T, uint16_t> ? DType::bf16
                                                      : DType::i64;

std::shared_ptr<const StepList> shared_steps(const AllReduceShape& shape, int rank) {
  return std::make_shared<const StepList>(all_reduce_steps(shape, rank));
}

template <typename T>
std::string all_reduce_fault(const AllReduceShape& shape) {
  Switchboard board;
  return on_ranks(shape.ranks, [&](int rank) {
    const size_t n = static_cast<size_t>(shape.n);
    std::vector<T> data(n + 2, number<T>(77));
    for (size_t i = 0; i < n; ++i) data[i + 1] = number<T>(value(rank, static_cast<int64_t>(i)));
    TestLink link(board, rank, 0);
    TestNode node(board, *shape.nodes, rank);
    StepsRun run;
    run.start(
        {.steps = shared_steps(shape, rank), .data = data.data() + 1, .t = kType<T>, .link = &link, .node = &node});
    finish(run);
    for (size_t i = 0; i < n; ++i) {
      int64_t sum = 0;
      for (int r = 0; r < shape.ranks; ++r) sum += value(r, static_cast<int64_t>(i));
      expect(data[i + 1] == number<T>(sum), "rank " + std::to_string(rank) + ", element " + std::to_string(i));
    }
    expect(data.front() == number<T>(77) && data.back() == number<T>(77), "wrote outside");
  });
}

float rough(int rank, int64_t i) {
  std::mt19937 gen(static_cast<uint32_t>(rank * 7919 + i));
  return std::ldexp(static_cast<float>(gen() % 16777216) - 8388608.0f, static_cast<int>(gen() % 24) - 30);
}

}  // namespace

TEST_CASE("all algorithms, all types, odd sizes") {
  for (int ranks : {1, 2, 3, 4, 5, 8}) {
    const NodeMap nodes = even_nodes(ranks, ranks > 4 ? 3 : 2);
    for (CollectiveAlgorithm algorithm : kCollectiveAlgorithms)
      for (int64_t n : {0, 1, 2, 3, 17, 101, 1023})
        for (int64_t segment : {1, 16, 5000}) {
          if (segment == 1 && n > 101) continue;
          const AllReduceShape shape{algorithm, ranks, n, segment, &nodes};
          std::string fault = all_reduce_fault<float>(shape);
          if (algorithm != CollectiveAlgorithm::hierarchical && fault.empty()) {
            fault = all_reduce_fault<uint16_t>(shape);
            if (fault.empty() && segment == 16) fault = all_reduce_fault<double>(shape);
            if (fault.empty() && segment == 16) fault = all_reduce_fault<int64_t>(shape);
          }
          if (fault.empty()) continue;
          CAPTURE(algorithm_name(algorithm));
          CAPTURE(ranks);
          CAPTURE(n);
          CAPTURE(segment);
          FAIL_CHECK(fault);
        }
  }
}

TEST_CASE("reduce_scatter and all_gather over uneven parts") {
  for (int ranks : {1, 2, 3, 5, 8}) {
    std::vector<int64_t> cuts{0};
    for (int r = 0; r < ranks; ++r) cuts.push_back(cuts.back() + (r * 37 + 5) % 23 * (r % 3));
    const PartsShape shape{.cuts = cuts, .segment = 4};
    Switchboard board;
    const std::string fault = on_ranks(ranks, [&](int rank) {
      std::vector<float> data(static_cast<size_t>(cuts.back()));
      for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(value(rank, static_cast<int64_t>(i)));
      TestLink link(board, rank, 0);
      StepsRun run;
      run.start({.steps = std::make_shared<const StepList>(reduce_scatter_steps(shape, rank)),
                 .data = data.data(),
                 .link = &link});
      finish(run);
      for (int64_t i = cuts[static_cast<size_t>(rank)]; i < cuts[static_cast<size_t>(rank) + 1]; ++i) {
        int64_t sum = 0;
        for (int r = 0; r < ranks; ++r) sum += value(r, i);
        expect(data[static_cast<size_t>(i)] == static_cast<float>(sum), "reduce_scatter, element " + std::to_string(i));
      }
      // The same run object and memory again.
      run.start({.steps = std::make_shared<const StepList>(all_gather_steps(shape, rank)),
                 .data = data.data(),
                 .link = &link});
      finish(run);
      for (int64_t i = 0; i < cuts.back(); ++i) {
        int64_t sum = 0;
        for (int r = 0; r < ranks; ++r) sum += value(r, i);
        expect(data[static_cast<size_t>(i)] == static_cast<float>(sum), "all_gather, element " + std::to_string(i));
      }
    });
    CHECK(fault == "");
  }
}

TEST_CASE(
    "sums have one order: the same bits on all ranks and in every run, a ring's chunk from its owner's successor on") {
  const int ranks = 5;
  const int64_t n = 1000;
  const NodeMap nodes = even_nodes(ranks, 1);
  for (CollectiveAlgorithm algorithm : kCollectiveAlgorithms) {
    std::vector<std::vector<float>> results;
    for (int round = 0; round < 3; ++round) {
      std::vector<std::vector<float>> data(ranks, std::vector<float>(n));
      Switchboard board;
      const std::string fault = on_ranks(ranks, [&](int rank) {
        auto& mine = data[static_cast<size_t>(rank)];
        for (int64_t i = 0; i < n; ++i) mine[static_cast<size_t>(i)] = rough(rank, i);
        TestLink link(board, rank, 0);
        TestNode node(board, nodes, rank);
        StepsRun run;
        run.start({.steps = shared_steps({algorithm, ranks, n, 37, &nodes}, rank),
                   .data = mine.data(),
                   .link = &link,
                   .node = &node});
        std::mt19937 gen(static_cast<uint32_t>(rank + round * 100));
        for (int k = 0; k < 50; ++k)  // ranks look around at different times in every round
          if (gen() % 2) run.step();
          else std::this_thread::yield();
        finish(run);
      });
      CHECK(fault == "");
      results.insert(results.end(), data.begin(), data.end());
    }
    CAPTURE(algorithm_name(algorithm));
    for (const auto& r : results) CHECK(std::memcmp(r.data(), results[0].data(), n * sizeof(float)) == 0);
    if (algorithm != CollectiveAlgorithm::ring) continue;
    for (int64_t i = 0; i < n; ++i) {
      const int owner = static_cast<int>(i / (n / ranks));
      float sum = rough((owner + 1) % ranks, i);
      for (int k = 2; k <= ranks; ++k) sum += rough((owner + k) % ranks, i);
      if (results[0][static_cast<size_t>(i)] != sum) FAIL_CHECK("element ", i);
    }
  }
}

TEST_CASE("several collectives under way, finished in any order") {
  const int ranks = 4, jobs = 6;
  const NodeMap nodes = even_nodes(ranks, 2);
  Switchboard board;
  const std::string fault = on_ranks(ranks, [&](int rank) {
    std::vector<StepsRun> runs(jobs);
    std::vector<std::vector<float>> data;
    std::deque<TestLink> links;
    TestNode node(board, nodes, rank);  // one for all: the order of planning is the order of the node's operations
    for (int j = 0; j < jobs; ++j) {
      const AllReduceShape shape{kCollectiveAlgorithms[j % 4], ranks, 100 + 31 * j, 7, &nodes};
      data.emplace_back(static_cast<size_t>(shape.n));
      for (int64_t i = 0; i < shape.n; ++i)
        data.back()[static_cast<size_t>(i)] = static_cast<float>(value(rank, i + j));
      links.emplace_back(board, rank, j);
      runs[static_cast<size_t>(j)].start(
          {.steps = shared_steps(shape, rank), .data = data.back().data(), .link = &links.back(), .node = &node});
    }
    std::mt19937 gen(static_cast<uint32_t>(rank));
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    for (bool all_done = false; !all_done;) {
      expect(std::chrono::steady_clock::now() < end, "not done");
      for (int k = 0; k < 8; ++k) runs[gen() % jobs].step();
      all_done = true;
      for (const StepsRun& run : runs) all_done = all_done && run.done();
      if (!all_done) std::this_thread::yield();
    }
    for (int j = 0; j < jobs; ++j)
      for (size_t i = 0; i < data[static_cast<size_t>(j)].size(); ++i) {
        int64_t sum = 0;
        for (int r = 0; r < ranks; ++r) sum += value(r, static_cast<int64_t>(i) + j);
        expect(data[static_cast<size_t>(j)][i] == static_cast<float>(sum), "job " + std::to_string(j));
      }
  });
  CHECK(fault == "");
}

TEST_CASE("bf16 is added in f32 and rounded at each hop, to nearest even") {
  // bf16 has 8 significant bits: above 256 its neighbours are 2 apart. 257 is rounded to 256 at each of two hops.
  const int ranks = 3;
  std::vector<uint16_t> results(ranks);
  Switchboard board;
  const NodeMap nodes = even_nodes(ranks, 1);
  const std::string fault = on_ranks(ranks, [&](int rank) {
    // One element: chunk 2 of the ring, whose sum starts at rank 0 and ends at rank 2.
    uint16_t x = number<uint16_t>(rank == 0 ? 256 : 1);
    TestLink link(board, rank, 0);
    StepsRun run;
    run.start({.steps = shared_steps({.ranks = ranks, .n = 1}, rank), .data = &x, .t = DType::bf16, .link = &link});
    finish(run);
    results[static_cast<size_t>(rank)] = x;
  });
  CHECK(fault == "");
  for (uint16_t r : results) CHECK(r == number<uint16_t>(256));
}

TEST_CASE("maximum and minimum") {
  for (ReduceOp op : {ReduceOp::max, ReduceOp::min}) {
    Switchboard board;
    const std::string fault = on_ranks(4, [&](int rank) {
      std::vector<float> x(9);
      for (int64_t i = 0; i < 9; ++i) x[static_cast<size_t>(i)] = static_cast<float>(value(rank, i));
      TestLink link(board, rank, 0);
      StepsRun run;
      run.start(
          {.steps = shared_steps({.algorithm = CollectiveAlgorithm::tree, .ranks = 4, .n = 9, .segment = 2}, rank),
           .data = x.data(),
           .op = op,
           .link = &link});
      finish(run);
      for (int64_t i = 0; i < 9; ++i) {
        int64_t best = value(0, i);
        for (int r = 1; r < 4; ++r)
          best = op == ReduceOp::max ? std::max(best, value(r, i)) : std::min(best, value(r, i));
        expect(x[static_cast<size_t>(i)] == static_cast<float>(best), "element " + std::to_string(i));
      }
    });
    CHECK(fault == "");
  }
}

TEST_CASE("a run that waits names its peer") {
  Switchboard board;
  TestLink link(board, 0, 0);
  StepsRun run;
  CHECK(run.done());
  CHECK(run.pending_peer() == -1);
  float x = 1;
  run.start({.steps = shared_steps({.algorithm = CollectiveAlgorithm::doubling, .ranks = 4, .n = 1}, 0),
             .data = &x,
             .link = &link});
  run.step();
  CHECK_FALSE(run.done());
  CHECK(run.pending_peer() == 1);
}
