// One rank: every collective is a copy or nothing.
#include <cstring>

#include "libcore/base/check.h"
#include "libcore/comm/comm.h"
#include "libcore/comm/cuts.h"
#include "libcore/comm/host_name.h"
#include "libcore/comm/segment.h"
#include "libcore/comm/self_mail.h"

namespace rw {
namespace {

void copy_unless_same(void* to, const void* from, int64_t bytes) {
  if (to != from && bytes > 0) std::memmove(to, from, static_cast<size_t>(bytes));
}

class SelfComm final : public Comm {
 public:
  explicit SelfComm(Placement place) : place_(place), self_(mail_, "rank 0 (itself)") {}
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string name() const override { return "self"; }
  std::vector<std::string> hosts() const override { return {host_name()}; }
  std::vector<Placement> places() const override { return {place_}; }
  SharedBuffer allocate(int64_t bytes) override { return allocate_private(bytes); }
  Request all_reduce_start(void*, int64_t n, DType t, ReduceOp op) override {
    CHECK(n >= 0, "n = %lld", static_cast<long long>(n));
    check_reducible("all_reduce", t, op);
    return {next_++};
  }
  Request reduce_scatter_start(void*, Cuts cuts, DType t) override {
    check_cuts(cuts, 1);
    check_reducible("reduce_scatter", t, ReduceOp::sum);
    return {next_++};
  }
  Request all_gather_start(const void* part, void* data, Cuts cuts, DType t) override {
    check_cuts(cuts, 1);
    copy_unless_same(first_dealt(data, cuts, t), part, dealt_out(cuts) * dtype_bytes(t));
    return {next_++};
  }
  Request send_start(const void* data, int64_t bytes, int peer, int tag) override {
    CHECK(peer == 0 && bytes >= 0 && tag >= 0, "send to rank %d with tag %d: there is one rank", peer, tag);
    return {.id = self_.send(data, bytes, tag), .mail = true};
  }
  Request recv_start(void* data, int64_t bytes, int peer, int tag) override {
    CHECK(peer == 0 && bytes >= 0 && tag >= 0, "recv from rank %d with tag %d: there is one rank", peer, tag);
    return {.id = self_.recv(data, bytes, tag), .mail = true};
  }
  void progress() override {}
  bool done(Request r) override {
    if (r.id < 0) return true;
    if (!r.mail) {
      CHECK(r.id < next_, "request %lld was not started here", static_cast<long long>(r.id));
      return true;
    }
    self_.settle(r.id);
    return mail_.done(r.id);
  }
  void wait(Request r) override {
    if (!done(r)) self_.check_can_end(r.id);
  }
  void broadcast(void*, int64_t, int root) override { CHECK(root == 0, "root %d of one rank", root); }
  void barrier() override {}
  std::unique_ptr<Comm> split(int, int) override {
    auto part = make_self_comm(place_);
    part->set_timeout(timeout_s());
    return part;
  }

 private:
  Placement place_;
  int64_t next_ = 0;
  Tickets mail_;
  SelfMail self_;
};

}  // namespace

std::unique_ptr<Comm> make_self_comm(Placement place) { return std::make_unique<SelfComm>(place); }

}  // namespace rw
