#include "tests/comm/comm_checks.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <stdexcept>
#include <thread>

namespace rw::checks {
namespace {

template <typename... Args>
void expect(bool ok, fmt::format_string<Args...> format, Args&&... args) {
  if (!ok) throw std::runtime_error("check failed: " + fmt::format(format, std::forward<Args>(args)...));
}

template <typename T>
constexpr DType kType = std::is_same_v<T, float>    ? DType::f32
                        : std::is_same_v<T, double> ? DType::f64
                                                    : DType::i64;

// 0, 1, primes, around a cache line, around the small limit (8 KiB) and the stage (128 KiB) in f32 and f64, several
// stages.
const std::vector<int64_t> kSizes = {0,    1,    2,    3,     15,    16,    17,     101,   1023,
                                     1025, 2048, 2049, 16385, 32768, 32769, 100003, 140009};

int64_t value(int rank, int64_t i) { return (i * 7 + rank * 13 + (i * rank) % 5) % 101 - 50; }

// n elements in private memory (at an odd multiple of the element size) or in the communicator's, with canaries around.
template <typename T>
class Guarded {
 public:
  Guarded(Comm& comm, int64_t n, bool shared) : n_(n) {
    if (shared) buffer_ = comm.allocate((n + 2 * kGuard) * static_cast<int64_t>(sizeof(T)));
    else private_.resize(static_cast<size_t>(n + 2 * kGuard));
    base_ = shared ? static_cast<T*>(buffer_.data) : private_.data();
    for (int64_t i = 0; i < kGuard; ++i) base_[i] = base_[kGuard + n + i] = T(-77);
  }
  T* data() { return base_ + kGuard; }
  T& operator[](int64_t i) { return base_[kGuard + i]; }
  void check(const char* what) {
    for (int64_t i = 0; i < kGuard; ++i)
      expect(base_[i] == T(-77) && base_[kGuard + n_ + i] == T(-77), "{}: wrote outside of {} elements", what, n_);
  }

 private:
  static constexpr int64_t kGuard = 3;
  int64_t n_;
  SharedBuffer buffer_;
  std::vector<T> private_;
  T* base_ = nullptr;
};

int64_t expected(int ranks, int64_t i, ReduceOp op) {
  int64_t e = value(0, i);
  for (int r = 1; r < ranks; ++r) {
    const int64_t v = value(r, i);
    e = op == ReduceOp::sum ? e + v : op == ReduceOp::max ? std::max(e, v) : std::min(e, v);
  }
  return e;
}

template <typename T>
void all_reduce_of(Comm& comm, int64_t n, bool shared, ReduceOp op) {
  Guarded<T> x(comm, n, shared);
  for (int64_t i = 0; i < n; ++i) x[i] = static_cast<T>(value(comm.rank(), i));
  comm.all_reduce(x.data(), n, kType<T>, op);
  for (int64_t i = 0; i < n; ++i)
    expect(x[i] == static_cast<T>(expected(comm.size(), i, op)), "all_reduce of {} {}: element {} is {}, not {}", n,
           dtype_name(kType<T>), i, x[i], expected(comm.size(), i, op));
  x.check("all_reduce");
  comm.barrier();  // shared memory of other ranks is released together
}

// Values whose sum depends on the order of additions.
float rough(int rank, int64_t i) {
  uint64_t h = static_cast<uint64_t>(i * 31 + rank + 1) * 0x9e3779b97f4a7c15u;
  h = (h ^ (h >> 29)) * 0xbf58476d1ce4e5b9u;
  const auto bits = static_cast<uint32_t>(h >> 32);
  return std::ldexp(static_cast<float>(bits % 16777216u) - 8388608.0f, static_cast<int>(bits >> 24) % 24 - 30);
}

}  // namespace

void all_reduce_exact(Comm& comm) {
  for (int64_t n : kSizes)
    for (bool shared : {false, true}) {
      all_reduce_of<float>(comm, n, shared, ReduceOp::sum);
      all_reduce_of<double>(comm, n, shared, ReduceOp::sum);
      all_reduce_of<int64_t>(comm, n, shared, ReduceOp::sum);
      all_reduce_of<float>(comm, n, shared, ReduceOp::max);
      all_reduce_of<int64_t>(comm, n, shared, ReduceOp::min);
    }
}

void all_reduce_order(Comm& comm, const Topology& topology) {
  for (int64_t n : {int64_t{7}, int64_t{5003}, int64_t{70001}}) {
    std::vector<float> want(static_cast<size_t>(n));
    int64_t order_matters = 0;
    for (int64_t i = 0; i < n; ++i) {
      float sum = 0, backwards = 0;
      for (int node = 0; node < topology.nodes; ++node) {
        float part = 0;
        bool first = true;
        for (int r = 0; r < comm.size(); ++r) {
          if (r * topology.nodes / comm.size() != node) continue;
          part = first ? rough(r, i) : part + rough(r, i);
          first = false;
        }
        sum = node == 0 ? part : sum + part;
      }
      for (int r = comm.size() - 1; r >= 0; --r) backwards += rough(r, i);
      want[static_cast<size_t>(i)] = sum;
      order_matters += sum != backwards;
    }
    expect(comm.size() < 3 || n < 100 || order_matters > n / 20, "the values do not tell orders apart ({} of {})",
           order_matters, n);
    for (bool shared : {false, true}) {
      Guarded<float> x(comm, n, shared);
      for (int64_t i = 0; i < n; ++i) x[i] = rough(comm.rank(), i);
      comm.all_reduce(x.data(), n, DType::f32, ReduceOp::sum);
      expect(std::memcmp(x.data(), want.data(), static_cast<size_t>(n) * sizeof(float)) == 0,
             "sum of {} floats (shared memory: {}) differs from the sum in rank order", n, shared);
      comm.barrier();
    }
  }
}

void all_reduce_nan(Comm& comm) {
  for (ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::min})
    for (int holder = 0; holder < comm.size(); ++holder) {
      const double mine = comm.rank() == holder ? std::numeric_limits<double>::quiet_NaN() : 1.0;
      expect(std::isnan(comm.all_reduce_value(mine, op)), "the NaN of rank {} was lost", holder);
    }
}

void reduce_scatter_exact(Comm& comm) {
  const int ranks = comm.size(), me = comm.rank();
  for (int64_t n : kSizes)
    for (bool shared : {false, true})
      for (bool own_place : {false, true}) {
        Guarded<float> data(comm, n * ranks, shared), apart(comm, n, false);
        for (int64_t i = 0; i < n * ranks; ++i) data[i] = static_cast<float>(value(me, i));
        float* shard = own_place ? data.data() + me * n : apart.data();
        comm.reduce_scatter(data.data(), shard, n, DType::f32);
        for (int64_t i = 0; i < n; ++i)
          expect(shard[i] == static_cast<float>(expected(ranks, me * n + i, ReduceOp::sum)),
                 "reduce_scatter of {}: element {} is {}", n, i, shard[i]);
        data.check("reduce_scatter");
        apart.check("reduce_scatter");
        comm.barrier();
      }
}

void all_gather_exact(Comm& comm) {
  const int ranks = comm.size(), me = comm.rank();
  for (int64_t n : kSizes)
    for (int kind = 0; kind < 5; ++kind) {
      // private or shared data, shard apart (private or shared) or at its place; kind 4: another kind on each rank
      const bool shared_data = kind == 4 ? me % 2 == 0 : kind >= 2;
      const bool own_place = kind == 1 || kind == 3;
      Guarded<int64_t> shared(comm, n * ranks, true), plain(comm, n * ranks, false), shared_shard(comm, n, true);
      Guarded<int64_t>& data = shared_data ? shared : plain;
      int64_t* shard = own_place ? data.data() + me * n : shared_shard.data();
      for (int64_t i = 0; i < n; ++i) shard[i] = value(me, i) + 1000 * me;
      comm.all_gather(shard, data.data(), n * 8);
      for (int64_t i = 0; i < n; ++i) shard[i] += own_place ? 0 : 1;  // ours again: peers have what they needed
      for (int r = 0; r < ranks; ++r)
        for (int64_t i = 0; i < n; ++i)
          expect(data[r * n + i] == value(r, i) + 1000 * r, "all_gather of {} (kind {}): element {} of rank {} is {}",
                 n, kind, i, r, data[r * n + i]);
      data.check("all_gather");
      comm.barrier();
    }
}

void broadcast_exact(Comm& comm) {
  for (int64_t n : kSizes)
    for (int root = 0; root < comm.size(); ++root)
      for (int kind = 0; kind < 3; ++kind) {  // private, shared, another kind on each rank
        Guarded<int64_t> plain(comm, n, false), shared(comm, n, true);
        Guarded<int64_t>& x = kind == 1 || (kind == 2 && comm.rank() % 2 == 0) ? shared : plain;
        for (int64_t i = 0; i < n; ++i) x[i] = comm.rank() == root ? value(root, i) : -1;
        comm.broadcast(x.data(), n * 8, root);
        for (int64_t i = 0; i < n; ++i)
          expect(x[i] == value(root, i), "broadcast of {} from {}: element {}", n, root, i);
        x.check("broadcast");
        comm.barrier();
      }
}

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
      if (peer != me) comm.send(&out, 8, peer, m);
    }
  for (int peer = 0; peer < ranks; ++peer)
    for (int m = 0; m < 5; ++m) {
      int64_t in = -1;
      if (peer != me) comm.recv(&in, 8, peer, m);
      expect(peer == me || in == peer * 100 + me * 10 + m, "message {} from {}: {}", m, peer, in);
    }
  comm.barrier();
}

void many_in_flight(Comm& comm) {
  std::mt19937 same(42), own(static_cast<uint32_t>(7 + comm.rank()));
  for (int round = 0; round < 4; ++round) {
    struct Bucket {
      Guarded<float> x;
      int64_t n;
      Request request;
    };
    std::vector<Bucket> buckets;
    for (int b = 0; b < 25; ++b) {
      const int64_t n = same() % 3 == 0 ? same() % 200 : same() % 90000;
      buckets.push_back({Guarded<float>(comm, n, b % 3 != 1), n, {}});
      for (int64_t i = 0; i < n; ++i) buckets.back().x[i] = static_cast<float>(value(comm.rank(), i + b));
    }
    for (auto& b : buckets) {
      for (uint32_t k = own() % 4; k > 0; --k) std::this_thread::yield();
      b.request = comm.all_reduce_start(b.x.data(), b.n, DType::f32, ReduceOp::sum);
      if (own() % 2) comm.progress();
    }
    if (round == 1) comm.barrier();  // other operations pass requests under way
    std::vector<size_t> order(buckets.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), own);
    for (size_t b : order) {
      if (own() % 3 == 0) std::this_thread::yield();
      comm.wait(buckets[b].request);
      for (int64_t i = 0; i < buckets[b].n; ++i)
        expect(buckets[b].x[i] == static_cast<float>(expected(comm.size(), i + static_cast<int64_t>(b), ReduceOp::sum)),
               "bucket {} of {}: element {}", b, buckets[b].n, i);
      buckets[b].x.check("bucket");
    }
    comm.barrier();
  }
}

void groups(Comm& comm) {
  const int ranks = comm.size(), me = comm.rank();
  std::vector<float> under_way(50000, static_cast<float>(me));
  const Request request = comm.all_reduce_start(under_way.data(), 50000, DType::f32, ReduceOp::sum);
  if (me % 2 == 0) comm.wait(request);  // half of the ranks wait before the split and half after it

  auto parity = comm.split(me % 2, -me);  // in falling order of rank
  const int members = (ranks + 1 - me % 2) / 2;
  expect(parity->size() == members, "group of {} ranks, expected {}", parity->size(), members);
  const int last = me % 2 + 2 * (members - 1);
  expect(parity->rank() == (last - me) / 2, "rank {} in the group, expected {}", parity->rank(), (last - me) / 2);
  expect(static_cast<int>(parity->hosts().size()) == members, "{} hosts", parity->hosts().size());
  expect(parity->timeout_s() == comm.timeout_s(), "the timeout is inherited");
  int64_t sum = 0;
  for (int r = me % 2; r < ranks; r += 2) sum += r;
  expect(parity->all_reduce_value(static_cast<int64_t>(me), ReduceOp::sum) == sum, "sum over the group");
  std::vector<int64_t> order(static_cast<size_t>(members));
  const int64_t me64 = me;
  parity->all_gather(&me64, order.data(), 8);
  for (int i = 0; i < members; ++i) expect(order[static_cast<size_t>(i)] == last - 2 * i, "place {} in the group", i);

  auto alone = parity->split(parity->rank(), 0);
  expect(alone->size() == 1 && alone->all_reduce_value(2.5, ReduceOp::sum) == 2.5, "a group of one");
  auto again = parity->split(0, parity->rank());
  all_reduce_of<float>(*again, 0, true, ReduceOp::sum);
  Guarded<double> x(*again, 40001, true);
  for (int64_t i = 0; i < 40001; ++i) x[i] = me + static_cast<double>(i);
  again->all_reduce(x.data(), 40001, DType::f64, ReduceOp::sum);
  for (int64_t i = 0; i < 40001; ++i)
    expect(x[i] == static_cast<double>(sum + members * i), "sum over the group of the group: element {}", i);

  if (me % 2 == 1) comm.wait(request);
  for (float v : under_way) expect(v == static_cast<float>(ranks * (ranks - 1) / 2), "the request under way");
  comm.barrier();
}

void values_and_texts(Comm& comm) {
  const int ranks = comm.size(), me = comm.rank();
  expect(comm.all_reduce_value(int64_t{1} << (40 + me), ReduceOp::sum) == ((int64_t{1} << ranks) - 1) << 40, "i64 sum");
  expect(comm.all_reduce_value(-0.5 * me, ReduceOp::min) == -0.5 * (ranks - 1), "f64 minimum");
  expect(comm.all_reduce_value(static_cast<int64_t>(me), ReduceOp::max) == ranks - 1, "i64 maximum");
  const std::string long_text(300000, 'x');
  for (int root = 0; root < ranks; ++root) {
    expect(comm.broadcast_text(me == root ? long_text : "mine", root) == long_text, "long text");
    expect(comm.broadcast_text(me == root ? "" : "mine", root).empty(), "empty text");
  }
  const auto texts = comm.gather_text(std::string(static_cast<size_t>(me * 3), static_cast<char>('a' + me)));
  expect(static_cast<int>(texts.size()) == ranks, "{} texts", texts.size());
  for (int r = 0; r < ranks; ++r)
    expect(texts[static_cast<size_t>(r)] == std::string(static_cast<size_t>(r * 3), static_cast<char>('a' + r)),
           "text {}", r);
  expect(static_cast<int>(comm.hosts().size()) == ranks && !comm.hosts()[0].empty(), "hosts");
}

void all(Comm& comm, const Topology& topology) {
  values_and_texts(comm);
  all_reduce_exact(comm);
  all_reduce_order(comm, topology);
  all_reduce_nan(comm);
  reduce_scatter_exact(comm);
  all_gather_exact(comm);
  broadcast_exact(comm);
  messages(comm);
  many_in_flight(comm);
  groups(comm);
}

}  // namespace rw::checks
