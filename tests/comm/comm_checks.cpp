#include "tests/comm/comm_checks.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <thread>

#include "tests/comm/check_tools.h"

namespace rw::checks {
namespace {

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

// The documented order: rank order within a node, then the nodes.
template <typename F>
float sum_over_nodes(int ranks, const Topology& topology, F term) {
  const int block = topology.ranks_per_node == 0 ? ranks : topology.ranks_per_node;
  float sum = 0;
  for (int begin = 0; begin < ranks; begin += block) {
    float part = term(begin);
    for (int r = begin + 1; r < std::min(ranks, begin + block); ++r) part += term(r);
    sum = begin == 0 ? part : sum + part;
  }
  return sum;
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
      sum = sum_over_nodes(comm.size(), topology, [&](int r) { return rough(r, i); });
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

// Every way to deal n elements out that is worth a test: even, all to one rank, growing parts, empty parts between.
std::vector<std::vector<int64_t>> deals(int64_t n, int ranks) {
  std::vector<std::vector<int64_t>> all{even_cuts(n, ranks)};
  std::vector<int64_t> last(static_cast<size_t>(ranks) + 1, 0), growing{0}, gaps{0};
  last.back() = n;
  for (int64_t r = 1; r <= ranks; ++r) {
    growing.push_back(n * r * r / ranks / ranks);
    gaps.push_back(r == ranks ? n : r % 2 == 0 ? gaps.back() : n * r / ranks);
  }
  all.push_back(last);
  if (ranks > 1) all.insert(all.end(), {growing, gaps});
  return all;
}

template <typename T>
void reduce_scatter_of(Comm& comm, const std::vector<int64_t>& cuts, bool shared) {
  const int ranks = comm.size(), me = comm.rank();
  const int64_t n = cuts.back();
  Guarded<T> data(comm, n, shared);
  for (int64_t i = 0; i < n; ++i) data[i] = static_cast<T>(value(me, i));
  comm.reduce_scatter(data.data(), cuts, kType<T>);
  for (int64_t i = cuts[static_cast<size_t>(me)]; i < cuts[static_cast<size_t>(me) + 1]; ++i)
    expect(data[i] == static_cast<T>(expected(ranks, i, ReduceOp::sum)), "reduce_scatter of {} {}: element {} is {}", n,
           dtype_name(kType<T>), i, data[i]);
  data.check("reduce_scatter");
  comm.barrier();
}

void reduce_scatter_exact(Comm& comm) {
  for (int64_t n : kSizes)
    for (const auto& cuts : deals(n, comm.size()))
      for (bool shared : {false, true}) {
        reduce_scatter_of<float>(comm, cuts, shared);
        reduce_scatter_of<int64_t>(comm, cuts, shared);
      }
}

void reduce_scatter_bits(Comm& comm) {
  const int me = comm.rank();
  for (int64_t n : {int64_t{11}, int64_t{7001}, int64_t{100003}})
    for (auto cuts : deals(n, comm.size()))
      for (bool shared : {false, true}) {
        const int64_t skipped = n % 5;  // the first cut need not be 0
        for (int64_t& c : cuts) c = std::max(c, skipped);
        Guarded<float> whole(comm, n, shared), parts(comm, n, shared);
        for (int64_t i = 0; i < n; ++i) whole[i] = parts[i] = rough(me, i);
        comm.all_reduce(whole.data(), n, DType::f32, ReduceOp::sum);
        comm.reduce_scatter(parts.data(), cuts, DType::f32);
        const int64_t begin = cuts[static_cast<size_t>(me)], end = cuts[static_cast<size_t>(me) + 1];
        expect(std::memcmp(whole.data() + begin, parts.data() + begin, static_cast<size_t>(end - begin) * 4) == 0,
               "reduce_scatter of {} differs from all_reduce (shared memory: {})", n, shared);
        for (int64_t i = 0; i < skipped; ++i) expect(parts[i] == rough(me, i), "element {} is nobody's", i);
        parts.check("reduce_scatter");
        comm.barrier();
      }
}

void all_gather_exact(Comm& comm) {
  const int ranks = comm.size(), me = comm.rank();
  for (int64_t n : kSizes)
    for (int kind = 0; kind < 4; ++kind) {
      // private or shared data, shard apart (shared) or at its place
      const bool shared_data = kind >= 2, own_place = kind == 1 || kind == 3;
      Guarded<int64_t> data(comm, n * ranks, shared_data), apart(comm, n, true);
      int64_t* shard = own_place ? data.data() + me * n : apart.data();
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

void all_gather_cuts(Comm& comm) {
  const int ranks = comm.size(), me = comm.rank();
  for (int64_t n : {int64_t{0}, int64_t{1}, int64_t{13}, int64_t{4099}, int64_t{100003}})
    for (const auto& cuts : deals(n, ranks))
      for (int kind = 0; kind < 4; ++kind) {
        const bool shared_data = kind >= 2, own_place = kind % 2 == 1;
        const int64_t begin = cuts[static_cast<size_t>(me)], mine = cuts[static_cast<size_t>(me) + 1] - begin;
        Guarded<float> data(comm, n, shared_data), apart(comm, mine, false);
        float* part = own_place ? data.data() + begin : apart.data();
        for (int64_t i = 0; i < mine; ++i) part[i] = static_cast<float>(begin + i);
        {
          std::vector<int64_t> passing = cuts;  // copied by the call
          const Request r = comm.all_gather_start(part, data.data(), passing, DType::f32);
          std::fill(passing.begin(), passing.end(), -1);
          comm.wait(r);
        }
        for (int64_t i = 0; i < n; ++i)
          expect(data[i] == static_cast<float>(i), "all_gather of {} (kind {}): element {} is {}", n, kind, i, data[i]);
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

// All kinds of operations under way together, waited for in other orders on each rank.
void kinds_in_flight(Comm& comm) {
  const int ranks = comm.size(), me = comm.rank();
  std::mt19937 same(4), own(static_cast<uint32_t>(70 + me));
  for (int round = 0; round < 3; ++round) {
    struct Work {
      Guarded<float> x;
      int64_t n;
      int kind;
      std::vector<int64_t> cuts;
      Request request;
    };
    std::vector<Work> work;
    for (int w = 0; w < 24; ++w) {
      const int64_t n = same() % 60000;
      const auto cuts = deals(n, ranks);
      work.push_back(
          {Guarded<float>(comm, n, same() % 2 == 0), n, static_cast<int>(same() % 5), cuts[same() % cuts.size()], {}});
      Work& now = work.back();
      for (int64_t i = 0; i < n; ++i) now.x[i] = static_cast<float>(value(now.kind == 2 ? 0 : me, i + w));
    }
    const int next = (me + 1) % ranks, previous = (me + ranks - 1) % ranks;
    for (Work& w : work) {
      if (w.kind == 0) w.request = comm.all_reduce_start(w.x.data(), w.n, DType::f32, ReduceOp::sum);
      if (w.kind == 1) w.request = comm.reduce_scatter_start(w.x.data(), w.cuts, DType::f32);
      if (w.kind == 2)
        w.request = comm.all_gather_start(w.x.data() + w.cuts[static_cast<size_t>(me)], w.x.data(), w.cuts, DType::f32);
      if (w.kind == 3) w.request = comm.send_start(w.x.data(), w.n * 4, next, 1);
      if (w.kind == 4) w.request = comm.send_start(w.x.data(), w.n * 4, previous, 2);
      if (own() % 3 == 0) comm.progress();
    }
    std::vector<std::vector<float>> received;
    std::vector<Request> receives;
    for (Work& w : work) {
      received.emplace_back(static_cast<size_t>(w.kind >= 3 ? w.n : 0));
      receives.push_back(w.kind < 3 ? Request{}
                                    : comm.recv_start(received.back().data(), w.n * 4, w.kind == 3 ? previous : next,
                                                      w.kind == 3 ? 1 : 2));
    }
    std::vector<size_t> order(work.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), own);
    for (size_t at : order) {
      Work& w = work[at];
      comm.wait(w.request);
      comm.wait(receives[at]);
      const auto shift = static_cast<int64_t>(at);
      const int64_t begin = w.kind == 1 ? w.cuts[static_cast<size_t>(me)] : 0;
      const int64_t end = w.kind == 1 ? w.cuts[static_cast<size_t>(me) + 1] : w.n;
      for (int64_t i = begin; i < end; ++i) {
        const float got = w.kind >= 3 ? received[at][static_cast<size_t>(i)] : w.x[i];
        const int64_t want = w.kind <= 1   ? expected(ranks, i + shift, ReduceOp::sum)
                             : w.kind == 2 ? value(0, i + shift)
                                           : value(w.kind == 3 ? previous : next, i + shift);
        expect(got == static_cast<float>(want), "operation {} of kind {} and {} elements: element {} is {}", at, w.kind,
               w.n, i, got);
      }
      w.x.check("operation in flight");
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

  // Memory that the parent's ranks share is private memory to the group.
  Guarded<float> parents(comm, 30011, true);
  for (int64_t i = 0; i < 30011; ++i) parents[i] = static_cast<float>(value(me, i));
  parity->all_reduce(parents.data(), 30011, DType::f32, ReduceOp::sum);
  for (int64_t i = 0; i < 30011; ++i) {
    int64_t want = 0;
    for (int r = me % 2; r < ranks; r += 2) want += value(r, i);
    expect(parents[i] == static_cast<float>(want), "sum in the parent's memory: element {}", i);
  }
  parents.check("the parent's memory");

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

void places(Comm& comm, const Topology& topology) {
  const auto nodes = comm.nodes();
  const auto ranks = comm.world_ranks();
  expect(static_cast<int>(nodes.size()) == comm.size() && nodes.size() == ranks.size(), "{} places", nodes.size());
  for (int r = 0; r < comm.size(); ++r) {
    const int node = topology.ranks_per_node == 0 ? 0 : r / topology.ranks_per_node;
    expect(nodes[static_cast<size_t>(r)] == node && ranks[static_cast<size_t>(r)] == r, "rank {} is rank {} on node {}",
           r, ranks[static_cast<size_t>(r)], nodes[static_cast<size_t>(r)]);
  }
  auto backwards = comm.split(0, -comm.rank());
  for (int r = 0; r < comm.size(); ++r) {
    const auto was = static_cast<size_t>(comm.size() - 1 - r);
    expect(backwards->nodes()[static_cast<size_t>(r)] == nodes[was], "node of rank {} in the group", r);
    expect(backwards->world_ranks()[static_cast<size_t>(r)] == ranks[was], "world rank of rank {} in the group", r);
  }
}

void shuffled_group(Comm& comm) {
  auto group = comm.split(0, comm.rank() % 2 * 1000 + comm.rank());
  reduce_scatter_bits(*group);
  all_gather_cuts(*group);
  messages_in_flight(*group);
}

void all(Comm& comm, const Topology& topology) {
  values_and_texts(comm);
  all_reduce_exact(comm);
  all_reduce_order(comm, topology);
  all_reduce_nan(comm);
  sums_of_16_bits(comm, topology);
  reduce_scatter_exact(comm);
  reduce_scatter_bits(comm);
  all_gather_exact(comm);
  all_gather_cuts(comm);
  broadcast_exact(comm);
  messages(comm);
  messages_in_flight(comm);
  swaps(comm);
  messages_to_oneself(comm);
  many_in_flight(comm);
  kinds_in_flight(comm);
  groups(comm);
  shuffled_group(comm);
}

}  // namespace rw::checks
