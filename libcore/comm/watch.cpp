#include "libcore/comm/watch.h"

#include <algorithm>
#include <utility>

#include "libcore/base/check.h"
#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/base/units.h"
#include "libcore/comm/cuts.h"
#include "libcore/comm/patience.h"

namespace rw {
namespace {

constexpr double kLastLookS = 1e-3;
constexpr auto kKinds = static_cast<size_t>(CommKind::n_kinds);

class WatchedComm final : public Comm {
 public:
  WatchedComm(std::unique_ptr<Comm> inner, const char* group, std::shared_ptr<CommRecord> record)
      : inner_(std::move(inner)), group_(group), record_(std::move(record)), who_(record_->groups[group]) {
    who_ = {.ranks = inner_->world_ranks(), .hosts = inner_->hosts()};
    timeout_s_ = inner_->timeout_s();
    record_->comms.push_back(inner_.get());
  }
  ~WatchedComm() override {
    std::erase(record_->comms, inner_.get());
    record_->n_open -= static_cast<int64_t>(open_.size());
  }

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string name() const override { return inner_->name(); }
  std::vector<std::string> hosts() const override { return inner_->hosts(); }
  std::vector<Placement> places() const override { return inner_->places(); }
  SharedBuffer allocate(int64_t bytes) override { return inner().allocate(bytes); }
  int64_t mapped_bytes() const override { return inner_->mapped_bytes(); }

  Request all_reduce_start(void* data, int64_t n, DType t, ReduceOp op) override {
    return start({CommKind::all_reduce, n * dtype_bytes(t)}, [&] { return inner().all_reduce_start(data, n, t, op); });
  }
  Request reduce_scatter_start(void* data, Cuts cuts, DType t) override {
    return start({CommKind::reduce_scatter, dealt_out(cuts) * dtype_bytes(t)},
                 [&] { return inner().reduce_scatter_start(data, cuts, t); });
  }
  Request all_gather_start(const void* part, void* data, Cuts cuts, DType t) override {
    return start({CommKind::all_gather, dealt_out(cuts) * dtype_bytes(t)},
                 [&] { return inner().all_gather_start(part, data, cuts, t); });
  }
  Request send_start(const void* data, int64_t bytes, int peer, int tag) override {
    return start({CommKind::send, bytes, peer}, [&] { return inner().send_start(data, bytes, peer, tag); });
  }
  Request recv_start(void* data, int64_t bytes, int peer, int tag) override {
    return start({CommKind::recv, bytes, peer}, [&] { return inner().recv_start(data, bytes, peer, tag); });
  }

  void progress() override {
    const Exposed timer(*record_);
    inner().progress();
  }
  bool done(Request request) override {
    const bool is_done = inner().done(request);
    if (is_done) close(request, CommOp::State::done);
    return is_done;
  }
  void wait(Request request) override {
    const Exposed timer(*record_);
    try {
      if (record_->n_open > static_cast<int64_t>(open_.size())) wait_with_others(request);
      inner().wait(request);
    } catch (...) {
      close(request, CommOp::State::failed);
      throw;
    }
    close(request, CommOp::State::done);
  }
  void broadcast(void* data, int64_t bytes, int root) override {
    wait(start({CommKind::broadcast, bytes}, [&] {
      inner().broadcast(data, bytes, root);
      return Request{};
    }));
  }
  void barrier() override {
    wait(start({CommKind::barrier, 0}, [&] {
      inner().barrier();
      return Request{};
    }));
  }
  std::unique_ptr<Comm> split(int color, int key) override { return inner().split(color, key); }

 private:
  struct Call {
    CommKind kind;
    int64_t bytes;
    int peer = -1;
  };
  struct Open {
    Request request;
    int64_t number;  // in the record
    CommOp op;       // a copy: the record may have passed it when it fails
  };
  struct Exposed {
    explicit Exposed(CommRecord& r) : record(r), start_s(now_s()) {}
    ~Exposed() { record.exposed_s += now_s() - start_s; }
    CommRecord& record;
    double start_s;
  };

  // set_timeout() is not virtual: the wish is passed on here.
  Comm& inner() {
    inner_->set_timeout(timeout_s_);
    return *inner_;
  }

  // This rank has operations under way on other communicators too. A peer may wait for those before it comes to this
  // one: all are moved on until this one is done. The time limit is inner().wait()'s to report.
  void wait_with_others(Request request) {
    Patience patience(nullptr, ranks_fit_cores(size()));
    while (!inner().done(request)) {
      for (Comm* comm : record_->comms) comm->progress();
      patience.pause();
      if (patience.slept()) inner_->look_for_dead_peers();
      if (patience.waited_s() > timeout_s_) {
        inner_->set_timeout(kLastLookS);
        try {
          inner_->wait(request);
        } catch (const Error& e) {
          // Its own words, with the time that was waited in all.
          std::string text = e.what();
          const std::string last_look = "within " + format_seconds(kLastLookS);
          if (const size_t at = text.find(last_look); at != std::string::npos)
            text.replace(at, last_look.size(), "within " + format_seconds(timeout_s_));
          throw Error(e.kind(), text);
        }
      }
    }
  }

  template <typename F>
  Request start(const Call& call, F call_inner) {
    const Exposed timer(*record_);
    const bool message = call.peer >= 0;
    int64_t& next = message ? n_messages_[{call.kind, call.peer}] : who_.n_collectives;
    CommCount*& count = counts_[static_cast<size_t>(call.kind)];
    if (!count) count = &record_->counts[{group_, call.kind}];
    ++count->calls;
    count->bytes += call.bytes;
    open_.push_back({.request = {},
                     .number = record_->n_ops,
                     .op = {.kind = call.kind,
                            .group = group_,
                            .sequence = next++,
                            .bytes = call.bytes,
                            .peer = call.peer,
                            .state = CommOp::State::started,
                            .start_s = timer.start_s,
                            .end_s = timer.start_s,
                            .phase = record_->phase,
                            .step = record_->step,
                            .micro_batch = record_->micro_batch}});
    ++record_->n_open;
    keep(open_.back().op);
    if (record_->on_start) record_->on_start(open_.back().op);
    try {
      const Request request = call_inner();
      if (request.id == Request{}.id) end(open_.size() - 1, CommOp::State::done);
      else open_.back().request = request;
      return request;
    } catch (...) {
      end(open_.size() - 1, CommOp::State::failed);
      throw;
    }
  }

  void keep(const CommOp& op) { record_->last[static_cast<size_t>(record_->n_ops++ % CommRecord::kKept)] = op; }

  void close(Request request, CommOp::State state) {
    for (size_t i = 0; i < open_.size(); ++i)
      if (open_[i].request.id == request.id && open_[i].request.mail == request.mail) return end(i, state);
  }

  void end(size_t i, CommOp::State state) {
    Open ended = open_[i];
    open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(i));
    --record_->n_open;
    ended.op.state = state;
    ended.op.end_s = now_s();
    record_->total_s += ended.op.end_s - ended.op.start_s;
    if (record_->n_ops - ended.number <= CommRecord::kKept)
      record_->last[static_cast<size_t>(ended.number % CommRecord::kKept)] = ended.op;
    else if (state == CommOp::State::failed) keep(ended.op);
  }

  std::unique_ptr<Comm> inner_;
  const char* group_;
  std::shared_ptr<CommRecord> record_;
  CommGroup& who_;  // in the record
  std::array<CommCount*, kKinds> counts_{};
  std::map<std::pair<CommKind, int>, int64_t> n_messages_;
  std::vector<Open> open_;  // few, in the order started
};

}  // namespace

const char* comm_kind_name(CommKind kind) {
  switch (kind) {
    case CommKind::all_reduce: return "all_reduce";
    case CommKind::reduce_scatter: return "reduce_scatter";
    case CommKind::all_gather: return "all_gather";
    case CommKind::broadcast: return "broadcast";
    case CommKind::send: return "send";
    case CommKind::recv: return "recv";
    case CommKind::barrier: return "barrier";
    case CommKind::n_kinds: break;
  }
  return "?";
}

std::unique_ptr<Comm> watch(std::unique_ptr<Comm> inner, const char* group, const std::shared_ptr<CommRecord>& record) {
  CHECK(inner && record, "watch needs a communicator and a record");
  return std::make_unique<WatchedComm>(std::move(inner), group, record);
}

}  // namespace rw
