#include "tests/comm/device_ranks.h"

#include <cstring>
#include <map>
#include <utility>

#include "libcore/comm/cuts.h"
#include "libcore/comm/nccl_comm.h"
#include "libcore/comm/segment.h"

namespace rw::checks {
namespace {

// Passes on what it does not change.
class Wrapper : public Comm {
 public:
  explicit Wrapper(std::unique_ptr<Comm> comm) : comm_(std::move(comm)) { timeout_s_ = comm_->timeout_s(); }
  int rank() const override { return comm_->rank(); }
  int size() const override { return comm_->size(); }
  std::string name() const override { return comm_->name(); }
  std::vector<std::string> hosts() const override { return comm_->hosts(); }
  std::vector<Placement> places() const override { return comm_->places(); }
  SharedBuffer allocate(int64_t bytes) override { return allocate_private(bytes); }
  Request all_reduce_start(void* data, int64_t n, DType t, ReduceOp op) override {
    return comm().all_reduce_start(data, n, t, op);
  }
  Request reduce_scatter_start(void* data, Cuts cuts, DType t) override {
    return comm().reduce_scatter_start(data, cuts, t);
  }
  Request all_gather_start(const void* part, void* data, Cuts cuts, DType t) override {
    return comm().all_gather_start(part, data, cuts, t);
  }
  Request send_start(const void* data, int64_t bytes, int peer, int tag) override {
    return comm().send_start(data, bytes, peer, tag);
  }
  Request recv_start(void* data, int64_t bytes, int peer, int tag) override {
    return comm().recv_start(data, bytes, peer, tag);
  }
  void progress() override { comm().progress(); }
  bool done(Request r) override { return comm().done(r); }
  void wait(Request r) override { comm().wait(r); }
  void broadcast(void* data, int64_t bytes, int root) override { comm().broadcast(data, bytes, root); }
  void barrier() override { comm().barrier(); }
  std::unique_ptr<Comm> split(int color, int key) override {
    return std::make_unique<Wrapper>(comm().split(color, key));
  }

 protected:
  Comm& comm() {
    comm_->set_timeout(timeout_s_);
    return *comm_;
  }
  std::unique_ptr<Comm> comm_;
};

class OnDevice final : public Wrapper {
 public:
  OnDevice(std::unique_ptr<Comm> comm, Device& device, Messages messages)
      : Wrapper(std::move(comm)), device_(device), messages_(messages) {
    if (messages_ == Messages::staged) return;
    std::vector<MessageEdge> edges;
    for (int from = 0; from < size(); ++from)
      for (int to = 0; to < size(); ++to)
        if (from != to) edges.push_back({from, to});
    comm_->prepare_messages(edges);
  }
  ~OnDevice() override {
    comm_.reset();  // before the memory that it may still use
    for (void* block : blocks_) device_.memory()->release(block);
  }

  Request all_reduce_start(void* data, int64_t n, DType t, ReduceOp op) override {
    Copy c = in(data, n * dtype_bytes(t));
    return keep(comm().all_reduce_start(c.at, n, t, op), c);
  }
  Request reduce_scatter_start(void* data, Cuts cuts, DType t) override {
    const int64_t first = cuts[0] * dtype_bytes(t), bytes = cuts.back() * dtype_bytes(t) - first;
    Copy c = in(static_cast<char*>(data) + first, bytes);
    return keep(comm().reduce_scatter_start(c.at - first, cuts, t), c);
  }
  Request all_gather_start(const void* part, void* data, Cuts cuts, DType t) override {
    const int64_t width = dtype_bytes(t), first = cuts[0] * width;
    const auto me = static_cast<size_t>(rank());
    char* home = static_cast<char*>(data) + cuts[me] * width;
    const int64_t mine = (cuts[me + 1] - cuts[me]) * width;
    Copy c = in(static_cast<char*>(data) + first, cuts.back() * width - first);
    if (part == home) return keep(comm().all_gather_start(c.at + cuts[me] * width - first, c.at - first, cuts, t), c);
    const Copy apart = in(const_cast<void*>(part), mine);
    c.second = apart.block;
    return keep(comm().all_gather_start(apart.at, c.at - first, cuts, t), c);
  }
  Request send_start(const void* data, int64_t bytes, int peer, int tag) override {
    Copy c = in(const_cast<void*>(data), bytes);
    c.bytes = 0;
    return keep(comm().send_start(c.at, bytes, peer, tag), c);
  }
  Request recv_start(void* data, int64_t bytes, int peer, int tag) override {
    Copy c = in(data, bytes);
    return keep(comm().recv_start(c.at, bytes, peer, tag), c);
  }
  bool done(Request r) override {
    if (!comm().done(r)) return false;
    out(r);
    return true;
  }
  void wait(Request r) override {
    comm().wait(r);
    out(r);
  }
  void broadcast(void* data, int64_t bytes, int root) override {
    const Copy c = in(data, bytes);
    comm().broadcast(c.at, bytes, root);
    finish(c);
  }
  std::unique_ptr<Comm> split(int color, int key) override {
    return std::make_unique<OnDevice>(comm().split(color, key), device_, messages_);
  }

 private:
  // Freeing memory waits for the whole device, operations under way included: it is kept.
  struct Block {
    void* data = nullptr;
    int64_t bytes = 0;
  };
  struct Copy {
    void* host;
    int64_t bytes;  // that come back
    Block block;
    char* at;
    Block second = {};
  };

  Block take(int64_t bytes) {
    const auto at = spare_.lower_bound(bytes);
    if (at != spare_.end() && at->first < 2 * bytes + 1024) {
      const Block block{at->second, at->first};
      spare_.erase(at);
      return block;
    }
    blocks_.push_back(device_.memory()->allocate(bytes));
    return {blocks_.back(), bytes};
  }
  void give(const Block& block) {
    if (block.data != nullptr) spare_.emplace(block.bytes, block.data);
  }

  // As far from an address that all types divide as the operand is.
  Copy in(void* host, int64_t bytes) {
    const auto shift = static_cast<int64_t>(reinterpret_cast<uintptr_t>(host) % 64);
    const Block block = take(bytes + shift + 1);
    char* at = static_cast<char*>(block.data) + shift;
    if (bytes > 0) device_.ops().upload({.device = at, .host = host, .bytes = bytes}, device_.stream());
    device_.wait();
    return {host, bytes, block, at};
  }
  Request keep(Request r, const Copy& c) {
    if (r.id == Request{}.id) finish(c);
    else open_[r.id] = c;
    return r;
  }
  void out(Request r) {
    const auto at = open_.find(r.id);
    if (at == open_.end()) return;
    // A send may be waited for before its receiver is there: its memory stays as it is.
    if (at->second.bytes == 0) return;
    finish(at->second);
    open_.erase(at);
  }
  void finish(const Copy& c) {
    if (c.bytes > 0) {
      device_.wait();
      device_.memory()->copy_to_host(c.host, c.at, c.bytes);
    }
    give(c.block);
    give(c.second);
  }

  Device& device_;
  Messages messages_;
  std::map<int64_t, Copy> open_;
  std::vector<void*> blocks_;
  std::multimap<int64_t, void*> spare_;
};

}  // namespace

std::unique_ptr<Device> open_test_device() { return open_device({.device = "cuda:0"}); }

std::unique_ptr<Comm> on_device(std::unique_ptr<Comm> comm, Device& device, Messages messages) {
  return std::make_unique<OnDevice>(std::move(comm), device, messages);
}
std::unique_ptr<Comm> on_host(std::unique_ptr<Comm> comm) { return std::make_unique<Wrapper>(std::move(comm)); }

void run_device_ranks(int n, const std::function<void(Comm& comm, Device& device)>& body) {
  run_thread_ranks(n, [&](Comm& host) {
    host.set_timeout(60);
    const auto device = open_test_device();
    const auto comm = make_nccl_comm(host, *device);
    body(*comm, *device);
  });
}

}  // namespace rw::checks
