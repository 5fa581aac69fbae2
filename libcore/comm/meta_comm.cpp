// A rank whose peers do not exist: what it would send is counted by watch(), and nothing is touched.
#include <utility>

#include "libcore/base/check.h"
#include "libcore/comm/cuts.h"
#include "libcore/comm/reduce.h"
#include "libcore/comm/watch.h"

namespace rw {
namespace {

class MetaComm final : public Comm {
 public:
  MetaComm(int rank, int size) : rank_(rank), size_(size) {
    CHECK(rank >= 0 && rank < size, "rank %d of %d", rank, size);
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string name() const override { return "meta"; }
  std::vector<std::string> hosts() const override {
    return std::vector<std::string>(static_cast<size_t>(size_), "meta");
  }
  std::vector<Placement> places() const override {
    std::vector<Placement> all;
    for (int r = 0; r < size_; ++r) all.push_back({.rank = r, .node = 0});
    return all;
  }
  SharedBuffer allocate(int64_t bytes) override {
    CHECK(bytes >= 0, "allocate %lld bytes", static_cast<long long>(bytes));
    void* address = reinterpret_cast<void*>(next_address_);
    next_address_ += (static_cast<uintptr_t>(bytes) + 64) / 64 * 64;
    return {address, bytes, nullptr};
  }
  Request all_reduce_start(void*, int64_t n, DType t, ReduceOp op) override {
    CHECK(n >= 0, "all_reduce of %lld elements", static_cast<long long>(n));
    check_reducible("all_reduce", t, op);
    return {};
  }
  Request reduce_scatter_start(void*, Cuts cuts, DType t) override {
    check_cuts(cuts, size_);
    check_reducible("reduce_scatter", t, ReduceOp::sum);
    return {};
  }
  Request all_gather_start(const void*, void*, Cuts cuts, DType) override {
    check_cuts(cuts, size_);
    return {};
  }
  Request send_start(const void*, int64_t, int peer, int) override {
    CHECK(peer >= 0 && peer < size_, "send to rank %d of %d", peer, size_);
    return {};
  }
  Request recv_start(void*, int64_t, int peer, int) override {
    CHECK(peer >= 0 && peer < size_, "recv from rank %d of %d", peer, size_);
    return {};
  }
  void progress() override {}
  bool done(Request) override { return true; }
  void wait(Request) override {}
  void broadcast(void*, int64_t, int root) override { CHECK(root >= 0 && root < size_, "root %d of %d", root, size_); }
  void barrier() override {}
  std::unique_ptr<Comm> split(int, int) override {
    CHECK(false, "a group of ranks that do not exist; make it by make_meta_comm");
  }

 private:
  int rank_, size_;
  uintptr_t next_address_ = uintptr_t{1} << 40;
};

}  // namespace

std::unique_ptr<Comm> make_meta_comm(int rank, int size) { return std::make_unique<MetaComm>(rank, size); }

}  // namespace rw
