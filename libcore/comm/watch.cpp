#include "libcore/comm/watch.h"

#include <algorithm>
#include <utility>

#include "libcore/base/check.h"
#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/comm/cuts.h"
#include "libcore/comm/polled_wait.h"

namespace rw {
namespace {

constexpr auto kKinds = static_cast<size_t>(CommKind::n_kinds);

void keep(CommRecord& record, const CommOp& op) {
  record.last[static_cast<size_t>(record.n_ops++ % CommRecord::kKept)] = op;
}

void end_op(CommRecord& record, int64_t number, CommOp op, CommOp::State state) {
  op.state = state;
  op.end_s = now_s();
  if (!op.is_on_device) record.total_s += op.end_s - op.start_s;
  if (record.on_end) record.on_end(op);
  if (record.n_ops - number <= CommRecord::kKept) record.last[static_cast<size_t>(number % CommRecord::kKept)] = op;
  else if (state == CommOp::State::failed) keep(record, op);
}

// Those of the operations that a device waits for that are done.
void end_done(CommRecord& record) {
  while (!record.on_device.empty() && record.on_device.front().comm->device_did(record.on_device.front().request)) {
    end_op(record, record.on_device.front().number, record.on_device.front().op, CommOp::State::done);
    record.on_device.pop_front();
  }
}

// An operation failed: what the device still waited for did not come.
void fail_on_device(CommRecord& record) {
  for (const CommRecord::OnDevice& o : record.on_device)
    end_op(record, o.number, o.op, o.comm->device_did(o.request) ? CommOp::State::done : CommOp::State::failed);
  record.on_device.clear();
}

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
    std::erase_if(record_->on_device, [this](const auto& o) { return o.comm == inner_.get(); });
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
    telling([&] { inner().progress(); });
  }
  bool done(Request request) override {
    const bool is_done = telling([&] { return inner().done(request); });
    if (is_done) close(request, CommOp::State::done);
    return is_done;
  }
  void wait(Request request) override {
    const Exposed timer(*record_);
    const bool may_block = inner().wait_blocks(request);
    try {
      if (may_block && record_->n_open > static_cast<int64_t>(open_.size())) wait_with_others(request);
      inner().wait(request);
    } catch (...) {
      fail_on_device(*record_);
      close(request, CommOp::State::failed);
      throw;
    }
    if (may_block || inner_->device_did(request)) close(request, CommOp::State::done);
    else hand_over(request);
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
  void prepare_messages(std::span<const MessageEdge> edges) override { inner().prepare_messages(edges); }
  void look_for_dead_peers() override { inner_->look_for_dead_peers(); }
  bool wait_blocks(Request request) override { return inner_->wait_blocks(request); }
  bool device_did(Request request) override { return inner_->device_did(request); }
  double take_stalled_s() override {
    return telling([&] { return inner_->take_stalled_s(); });
  }
  double take_device_s() override { return inner_->take_device_s(); }
  void replay(const std::function<void()>& replay) override { inner().replay(replay); }

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

  // A call in which an operation on a device can turn out to have failed.
  template <typename F>
  auto telling(F&& call) -> decltype(call()) {
    try {
      return call();
    } catch (...) {
      fail_on_device(*record_);
      throw;
    }
  }

  // set_timeout() is not virtual: the wish is passed on here.
  Comm& inner() {
    inner_->set_timeout(timeout_s_);
    return *inner_;
  }

  // This rank has operations under way on other communicators too. A peer may wait for those before it comes to this
  // one: all are moved on until this one is done. The time limit is inner().wait()'s to report.
  void wait_with_others(Request request) {
    wait_while_moving(inner(), request, [this] {
      for (Comm* comm : record_->comms) comm->progress();
    });
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
    end_done(*record_);
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
    keep(*record_, open_.back().op);
    if (record_->on_start) record_->on_start(open_.back().op);
    try {
      const Request request = call_inner();
      if (request.id == Request{}.id) end(open_.size() - 1, CommOp::State::done);
      else open_.back().request = request, open_.back().op.is_on_device = !inner_->wait_blocks(request);
      return request;
    } catch (...) {
      fail_on_device(*record_);
      end(open_.size() - 1, CommOp::State::failed);
      throw;
    }
  }

  size_t find(Request request) const {
    size_t i = 0;
    while (i < open_.size() && (open_[i].request.id != request.id || open_[i].request.mail != request.mail)) ++i;
    return i;
  }

  void close(Request request, CommOp::State state) {
    if (const size_t i = find(request); i < open_.size()) end(i, state);
  }

  void end(size_t i, CommOp::State state) {
    const Open ended = take(i);
    end_op(*record_, ended.number, ended.op, state);
  }

  // The device waits for it from here on.
  void hand_over(Request request) {
    const size_t i = find(request);
    if (i == open_.size()) return;
    const Open open = take(i);
    record_->on_device.push_back({inner_.get(), request, open.number, open.op});
  }

  Open take(size_t i) {
    const Open taken = open_[i];
    open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(i));
    --record_->n_open;
    return taken;
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

void CommRecord::add_stalls() {
  try {
    for (Comm* comm : comms) exposed_s += comm->take_stalled_s(), total_s += comm->take_device_s();
  } catch (...) {
    fail_on_device(*this);
    throw;
  }
  end_done(*this);
}

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
