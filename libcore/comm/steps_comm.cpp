// Requests of the direct communicator keep their numbers, those of this one count down from -2. Both are moved forward
// together wherever something is waited for; operations that block in the direct communicator come when nothing of this
// one is under way, because a peer may need this rank's steps to get there.
#include "libcore/comm/steps_comm.h"

#include <deque>
#include <map>
#include <tuple>
#include <utility>

#include "libcore/base/check.h"
#include "libcore/base/error.h"
#include "libcore/base/units.h"
#include "libcore/comm/patience.h"
#include "libcore/comm/reduce.h"
#include "libcore/comm/steps_link.h"

namespace rw {
namespace {

constexpr int64_t kTags = 1 << 14;  // operations under way at a time stay far below
constexpr size_t kKeptLists = 16;

class BoardLevel final : public NodeLevel {
 public:
  explicit BoardLevel(Board* board) : board_(board) {}
  int64_t plan_reduce(void* data, int64_t n, DType t, ReduceOp op) override {
    return plan({.op = BoardOp::all_reduce, .data = data, .n = n, .t = t, .reduce = op, .held = true});
  }
  int64_t plan_broadcast(void* data, int64_t bytes) override {
    return plan({.op = BoardOp::broadcast, .data = data, .n = bytes, .held = true});
  }
  void begin(int64_t operation) override {
    if (board_ != nullptr) board_->release(operation);
  }
  bool test(int64_t operation) override { return board_ == nullptr || board_->finished(operation); }

 private:
  int64_t plan(const BoardTask& task) { return board_ != nullptr ? board_->start(task) : 0; }
  Board* board_;
};

struct Job {
  explicit Job(const std::shared_ptr<MpiLink>& link) : messages(link, 0) {}
  int64_t number = 0, bytes = 0;
  StepsRun run;
  MpiStepLink messages;
  Transfers library;  // of the MPI library's own all_reduce
  bool is_library = false, is_done = false;
};

class StepsComm final : public Comm {
 public:
  explicit StepsComm(StepsCommConfig c) : c_(std::move(c)), level_(c_.board) {
    timeout_s_ = c_.direct->timeout_s();
    n_nodes_ = static_cast<int64_t>(c_.nodes.leaders.size());
  }

  int rank() const override { return c_.direct->rank(); }
  int size() const override { return c_.direct->size(); }
  std::string name() const override { return c_.direct->name(); }
  std::vector<std::string> hosts() const override { return c_.direct->hosts(); }
  std::vector<Placement> places() const override { return c_.direct->places(); }

  SharedBuffer allocate(int64_t bytes) override { return direct().allocate(bytes); }
  Request all_reduce_start(void* data, int64_t n, DType t, ReduceOp op) override {
    const int64_t bytes = n * dtype_bytes(t);
    const AllReducePick pick =
        c_.policy->forced ? *c_.policy->forced : pick_all_reduce(c_.policy->table, size(), n_nodes_, bytes);
    // Within one node two levels are one, the board's.
    const bool is_board = pick.way.steps == CollectiveAlgorithm::hierarchical && n_nodes_ == 1;
    const bool is_beyond_library = pick.way.is_library && is_16bit(t);
    if (n == 0 || is_board || is_beyond_library || pick.way == AllReduceWay{})
      return c_.direct->all_reduce_start(data, n, t, op);
    CHECK(n > 0, "all_reduce of %lld elements", static_cast<long long>(n));
    check_reducible("all_reduce", t, op);
    if (spare_.empty()) spare_.push_back(std::make_unique<Job>(c_.link));
    jobs_.push_back(std::move(spare_.back()));
    spare_.pop_back();
    Job& job = *jobs_.back();
    job.number = next_++;
    job.bytes = bytes;
    job.is_done = false;
    job.is_library = pick.way.is_library;
    if (job.is_library) {
      c_.link->start_all_reduce(job.library, {.data = data, .n = n, .t = t, .op = op});
    } else {
      job.messages.set_tag(static_cast<int>(job.number % kTags));
      job.run.start(
          {.steps = steps_for(pick, n, t), .data = data, .t = t, .op = op, .link = &job.messages, .node = &level_});
    }
    step();
    return {.id = -2 - (next_ - 1)};
  }
  Request reduce_scatter_start(void* data, Cuts cuts, DType t) override {
    return c_.direct->reduce_scatter_start(data, cuts, t);
  }
  Request all_gather_start(const void* part, void* data, Cuts cuts, DType t) override {
    return c_.direct->all_gather_start(part, data, cuts, t);
  }
  Request send_start(const void* data, int64_t bytes, int peer, int tag) override {
    return c_.direct->send_start(data, bytes, peer, tag);
  }
  Request recv_start(void* data, int64_t bytes, int peer, int tag) override {
    return c_.direct->recv_start(data, bytes, peer, tag);
  }

  void progress() override {
    c_.direct->progress();
    step();
  }
  void look_for_dead_peers() override { c_.direct->look_for_dead_peers(); }
  bool done(Request r) override {
    if (r.id >= -1) return c_.direct->done(r);
    CHECK(-2 - r.id < next_, "request %lld was not started here", static_cast<long long>(r.id));
    const Job* job = find(-2 - r.id);
    return job == nullptr || job->is_done;
  }
  void wait(Request r) override {
    if (r.id < -1) return wait_until([&] { return done(r); });
    if (!jobs_.empty()) wait_until([&] { return done(r) || jobs_.empty(); });
    c_.direct->set_timeout(timeout_s());
    c_.direct->wait(r);
  }

  void broadcast(void* data, int64_t bytes, int root) override { direct().broadcast(data, bytes, root); }
  void barrier() override { direct().barrier(); }
  std::unique_ptr<Comm> split(int color, int key) override { return direct().split(color, key); }

 private:
  // The direct communicator, with nothing of this one under way.
  Comm& direct() {
    wait_until([&] { return jobs_.empty(); });
    c_.direct->set_timeout(timeout_s());
    return *c_.direct;
  }

  std::shared_ptr<const StepList> steps_for(const AllReducePick& pick, int64_t n, DType t) {
    const int64_t segment = std::max<int64_t>(1, pick.segment_bytes / dtype_bytes(t));
    if (lists_.size() == kKeptLists) lists_.clear();
    auto& list = lists_[{*pick.way.steps, n, segment}];
    if (!list)
      list =
          std::make_shared<const StepList>(all_reduce_steps({*pick.way.steps, size(), n, segment, &c_.nodes}, rank()));
    return list;
  }

  Job* find(int64_t number) {
    const int64_t first = next_ - static_cast<int64_t>(jobs_.size());
    return number < first ? nullptr : jobs_[static_cast<size_t>(number - first)].get();
  }

  bool step() {
    bool moved = false;
    for (auto& job : jobs_) {
      if (job->is_done) continue;
      moved = (!job->is_library && job->run.step()) || moved;
      job->is_done = job->is_library ? job->library.done() : job->run.done();
      moved = moved || job->is_done;
    }
    while (!jobs_.empty() && jobs_.front()->is_done) {
      spare_.push_back(std::move(jobs_.front()));
      jobs_.pop_front();
    }
    return moved;
  }

  std::string complaint() const {
    const Job& job = *jobs_.front();
    const std::string what =
        fmt::format("all_reduce #{} ({}, group mpi): ", job.number, format_bytes(static_cast<double>(job.bytes)));
    const int peer = job.is_library ? -1 : job.run.pending_peer();
    return what + (peer < 0 ? "a rank" : c_.labels[static_cast<size_t>(peer)]) + " did not arrive";
  }

  template <typename Ready>
  void wait_until(Ready ready) {
    Patience patience(nullptr, ranks_fit_cores(c_.board != nullptr ? c_.board->size() : 1));
    while (!ready()) {
      c_.direct->progress();
      if (step()) {
        patience.moved();
        continue;
      }
      if (ready()) return;
      patience.pause();
      if (patience.slept() && c_.board != nullptr) c_.board->look_for_dead_peers();
      if (patience.waited_s() > timeout_s()) fail_waiting(complaint(), timeout_s());
    }
  }

  StepsCommConfig c_;
  BoardLevel level_;
  int64_t n_nodes_ = 1, next_ = 0;
  std::deque<std::unique_ptr<Job>> jobs_;  // in the order started; the last is next_ - 1
  std::vector<std::unique_ptr<Job>> spare_;
  std::map<std::tuple<CollectiveAlgorithm, int64_t, int64_t>, std::shared_ptr<const StepList>> lists_;
};

}  // namespace

std::shared_ptr<AllReducePolicy> make_all_reduce_policy(const std::string& choice, const std::string& table_file) {
  auto policy = std::make_shared<AllReducePolicy>();
  if (!table_file.empty()) policy->table = read_comm_table(table_file);
  if (choice == "auto") return policy;
  const std::optional<AllReduceWay> way = find_way(choice);
  if (!way) {
    std::string known = "auto";
    for (const std::string& n : way_names()) known += ", " + n;
    fail(ErrorKind::usage, "--allreduce: expected one of {}, found \"{}\"", known, choice);
  }
  policy->forced = AllReducePick{.way = *way};
  return policy;
}

std::unique_ptr<Comm> make_steps_comm(StepsCommConfig config) { return std::make_unique<StepsComm>(std::move(config)); }

}  // namespace rw
