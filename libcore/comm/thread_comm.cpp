// Ranks that are threads of one process: a board on the heap. Memory is visible to all threads; what they tell each
// other is where it is.
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "libcore/base/check.h"
#include "libcore/comm/board_comm.h"
#include "libcore/comm/host_name.h"
#include "libcore/comm/split_group.h"

namespace rw {
namespace {

// All ranks get a reference to what `leader` made.
template <typename T>
std::shared_ptr<T> share(Board& board, const std::shared_ptr<T>& made, int leader, double timeout_s) {
  const std::shared_ptr<T>* mine = &made;
  std::vector<const std::shared_ptr<T>*> all(static_cast<size_t>(board.size()));
  board.exchange(&mine, all.data(), sizeof mine, timeout_s);
  std::shared_ptr<T> result = *all[static_cast<size_t>(leader)];
  board.run({}, timeout_s);  // only now may the leader's own reference go
  return result;
}

BoardConfig thread_config(int rank, const std::vector<std::string>& labels, const std::shared_ptr<JobHealth>& health) {
  return {.rank = rank,
          .labels = labels,
          .group = "thread",
          .health = health,
          .may_spin = ranks_fit_cores(static_cast<int>(labels.size()))};
}

class ThreadHost final : public BoardHost {
 public:
  explicit ThreadHost(std::vector<Placement> places) : places_(std::move(places)) {}

  std::shared_ptr<Segment> make_segment(Board& board, int64_t bytes, double timeout_s) override {
    std::shared_ptr<Segment> segment;
    if (board.rank() == 0) {
      const int64_t stride = (bytes + 63) / 64 * 64;
      auto memory = heap_bytes(stride * board.size());
      segment = std::make_shared<Segment>();
      for (int r = 0; r < board.size(); ++r) segment->parts.push_back(memory.get() + r * stride);
      segment->bytes = bytes;
      segment->memory = memory;
    }
    return share(board, segment, 0, timeout_s);
  }

  std::unique_ptr<Comm> split(Board& board, int color, int key, double timeout_s) override {
    CHECK(color >= 0, "split color %d", color);
    const SplitWish wish{color, key};
    std::vector<SplitWish> wishes(static_cast<size_t>(board.size()));
    board.exchange(&wish, wishes.data(), sizeof wish, timeout_s);
    const std::vector<int> group = split_group(wishes, board.rank());
    const int n = static_cast<int>(group.size());
    int rank = 0;
    std::vector<std::string> labels;
    std::vector<Placement> places;
    for (int i = 0; i < n; ++i) {
      if (group[static_cast<size_t>(i)] == board.rank()) rank = i;
      labels.push_back(board.label(group[static_cast<size_t>(i)]));
      places.push_back(places_[static_cast<size_t>(group[static_cast<size_t>(i)])]);
    }
    std::shared_ptr<std::byte> memory;
    if (rank == 0) memory = heap_bytes(BoardMemory::bytes(n));
    memory = share(board, memory, group[0], timeout_s);
    std::unique_ptr<Comm> comm;
    if (n == 1) {
      comm = make_self_comm(places[0]);
    } else {
      auto config = thread_config(rank, labels, board.health());
      comm = make_board_comm({.board = std::make_unique<Board>(BoardMemory(memory, n), std::move(config)),
                              .host = std::make_unique<ThreadHost>(places),
                              .hosts = std::vector<std::string>(group.size(), host_name()),
                              .places = places});
    }
    comm->set_timeout(timeout_s);
    return comm;
  }

 private:
  std::vector<Placement> places_;  // (ranks)
};

}  // namespace

void run_thread_ranks(int n, const std::function<void(Comm&)>& body, int ranks_per_node) {
  CHECK(n >= 1 && ranks_per_node >= 0, "%d ranks, %d a node", n, ranks_per_node);
  if (n == 1) {
    auto comm = make_self_comm();
    body(*comm);
    return;
  }
  auto memory = heap_bytes(BoardMemory::bytes(n));
  auto health = std::make_shared<JobHealth>();
  std::vector<std::string> labels;
  std::vector<Placement> places;
  for (int r = 0; r < n; ++r) {
    labels.push_back("rank " + std::to_string(r) + " (thread)");
    places.push_back({.rank = r, .node = ranks_per_node == 0 ? 0 : r / ranks_per_node});
  }

  std::mutex mutex;
  std::exception_ptr first;
  auto failed = [&](int rank, const std::string& what) {
    std::lock_guard lock(mutex);
    if (!first) first = std::current_exception();
    health->fail_once("rank " + std::to_string(rank) + " failed: " + what);
  };
  auto run = [&](int rank) {
    try {
      auto comm = make_board_comm(
          {.board = std::make_unique<Board>(BoardMemory(memory, n), thread_config(rank, labels, health)),
           .host = std::make_unique<ThreadHost>(places),
           .hosts = std::vector<std::string>(static_cast<size_t>(n), host_name()),
           .places = places});
      body(*comm);
    } catch (const std::exception& e) {
      failed(rank, e.what());
    } catch (...) {
      failed(rank, "an exception of unknown type");
    }
  };
  std::vector<std::thread> threads;
  for (int r = 0; r < n; ++r) threads.emplace_back(run, r);
  for (auto& t : threads) t.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace rw
