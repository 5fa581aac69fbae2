// One rank: every collective is a copy or nothing.
#include <cstring>

#include "libcore/base/check.h"
#include "libcore/comm/comm.h"
#include "libcore/comm/host_name.h"
#include "libcore/comm/segment.h"

namespace rw {
namespace {

void copy_unless_same(void* to, const void* from, int64_t bytes) {
  if (to != from && bytes > 0) std::memmove(to, from, static_cast<size_t>(bytes));
}

class SelfComm final : public Comm {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string name() const override { return "self"; }
  std::vector<std::string> hosts() const override { return {host_name()}; }
  SharedBuffer allocate(int64_t bytes) override { return allocate_private(bytes); }
  Request all_reduce_start(void*, int64_t n, DType t, ReduceOp) override {
    CHECK(n >= 0, "n = %lld", static_cast<long long>(n));
    CHECK(t == DType::f32 || t == DType::f64 || t == DType::i64, "all_reduce of %s", dtype_name(t));
    return {next_++};
  }
  void progress() override {}
  void wait(Request request) override {
    CHECK(request.id >= 0 && request.id < next_, "a request that was not started");
  }
  void reduce_scatter(const void* data, void* shard, int64_t n, DType t) override {
    copy_unless_same(shard, data, n * dtype_bytes(t));
  }
  void all_gather(const void* shard, void* data, int64_t bytes) override { copy_unless_same(data, shard, bytes); }
  void broadcast(void*, int64_t, int root) override { CHECK(root == 0, "root %d of one rank", root); }
  void send(const void*, int64_t, int peer, int) override { CHECK(false, "send to rank %d: there is one rank", peer); }
  void recv(void*, int64_t, int peer, int) override { CHECK(false, "recv from rank %d: there is one rank", peer); }
  void barrier() override {}
  std::unique_ptr<Comm> split(int, int) override {
    auto part = std::make_unique<SelfComm>();
    part->set_timeout(timeout_s());
    return part;
  }

 private:
  int64_t next_ = 0;
};

}  // namespace

std::unique_ptr<Comm> make_self_comm() { return std::make_unique<SelfComm>(); }

}  // namespace rw
