#include "libcore/bench/comm/pair_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <nlohmann/json.hpp>

#include "libcore/base/check.h"
#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/base/median.h"
#include "libcore/base/units.h"

namespace rw {
namespace {

constexpr int64_t kSmallBytes = 8, kSmallCalls = 20;
constexpr int kTag = 1;

struct Medians {
  double latency_us = 0, gb_s = 0;
};
Medians medians_of(const std::vector<PairSpeed>& pairs, bool same_node) {
  std::vector<double> latency, bandwidth;
  for (const PairSpeed& p : pairs)
    if (p.same_node == same_node) latency.push_back(p.latency_us), bandwidth.push_back(p.gb_s);
  if (latency.empty()) return {};
  return {.latency_us = median(latency), .gb_s = median(bandwidth)};
}

std::string pair_name(const PairReport& r, const PairSpeed& p) {
  return fmt::format("ranks {} ({}) and {} ({})", p.a, r.hosts[static_cast<size_t>(p.a)], p.b,
                     r.hosts[static_cast<size_t>(p.b)]);
}

// The ends' samples of all pairs on all ranks; rows that this rank has no part in are zeros.
void share(Comm& comm, std::vector<PairSpeed>& pairs, int64_t samples) {
  std::vector<double> all;
  for (const PairSpeed& p : pairs)
    for (const std::vector<double>* times : {&p.latencies_us, &p.times_us}) {
      const bool mine = p.a == comm.rank();
      for (int64_t i = 0; i < samples; ++i) all.push_back(mine ? (*times)[static_cast<size_t>(i)] : 0);
    }
  comm.all_reduce(all.data(), static_cast<int64_t>(all.size()), DType::f64, ReduceOp::max);
  const double* from = all.data();
  for (PairSpeed& p : pairs)
    for (std::vector<double>* times : {&p.latencies_us, &p.times_us})
      times->assign(from, from + samples), from += samples;
}

}  // namespace

std::vector<std::vector<RankPair>> pair_rounds(int ranks) {
  CHECK(ranks >= 1, "%d ranks", ranks);
  // The circle method: one stands still, the others move on by a place; with an odd number one place is empty.
  const int n = ranks + ranks % 2;
  std::vector<int> seats;
  for (int r = 0; r < n; ++r) seats.push_back(r);
  std::vector<std::vector<RankPair>> rounds;
  for (int round = 0; round + 1 < n; ++round) {
    rounds.emplace_back();
    for (int i = 0; i < n / 2; ++i) {
      const int a = seats[static_cast<size_t>(i)], b = seats[static_cast<size_t>(n - 1 - i)];
      if (std::max(a, b) < ranks) rounds.back().emplace_back(std::min(a, b), std::max(a, b));
    }
    std::sort(rounds.back().begin(), rounds.back().end());
    std::rotate(seats.begin() + 1, seats.end() - 1, seats.end());
  }
  return rounds;
}

std::vector<double> time_ping_pong(Comm& comm, const PingPong& ping) {
  const auto [a, b] = ping.pair;
  const int me = comm.rank();
  std::vector<double> us;
  if (me != a && me != b) return us;
  const int peer = me == a ? b : a;
  for (int64_t i = -ping.warmup; i < ping.samples; ++i) {
    const double start = now_s();
    for (int64_t k = 0; k < ping.calls; ++k) {
      if (me == a) comm.send(ping.data, ping.bytes, peer, kTag);
      comm.recv(ping.data, ping.bytes, peer, kTag);
      if (me == b) comm.send(ping.data, ping.bytes, peer, kTag);
    }
    if (i >= 0) us.push_back((now_s() - start) * 1e6 / static_cast<double>(2 * ping.calls));
  }
  return us;
}

std::vector<PairSpeed> measure_pairs(const PairJob& job) {
  Comm& comm = job.comm;
  const std::vector<int> nodes = comm.nodes();
  std::vector<std::byte> buffer;
  try {
    buffer.resize(static_cast<size_t>(std::max(job.bytes, kSmallBytes)));
  } catch (const std::bad_alloc&) {
    fail(ErrorKind::usage, "--pair-bytes {}: more memory than there is; lower it", job.bytes);
  }
  std::vector<PairSpeed> pairs;
  std::vector<std::vector<RankPair>> rounds = pair_rounds(comm.size());
  if (!job.at_once) {
    std::vector<std::vector<RankPair>> alone;
    for (const auto& round : rounds)
      for (const RankPair& pair : round) alone.push_back({pair});
    rounds = alone;
  }
  for (const auto& round : rounds) {
    comm.barrier();
    for (const auto& [a, b] : round) {
      PairSpeed p{.a = a, .b = b, .latencies_us = {}, .times_us = {}};
      p.same_node = nodes[static_cast<size_t>(a)] == nodes[static_cast<size_t>(b)];
      PingPong ping{.pair = {a, b}, .data = buffer.data(), .bytes = kSmallBytes, .samples = job.samples};
      ping.calls = kSmallCalls;
      p.latencies_us = time_ping_pong(comm, ping);
      ping.bytes = job.bytes, ping.calls = 1;
      p.times_us = time_ping_pong(comm, ping);
      pairs.push_back(std::move(p));
    }
  }
  std::sort(pairs.begin(), pairs.end(), [](const PairSpeed& x, const PairSpeed& y) {
    return RankPair{x.a, x.b} < RankPair{y.a, y.b};
  });
  if (pairs.empty()) return pairs;
  share(comm, pairs, job.samples);
  for (PairSpeed& p : pairs) {
    p.latency_us = median(p.latencies_us);
    p.gb_s = static_cast<double>(job.bytes) / median(p.times_us) * 1e-3;
  }
  return pairs;
}

std::vector<PairOutlier> pair_outliers(const std::vector<PairSpeed>& pairs, double least) {
  std::vector<PairOutlier> outliers;
  const Medians within = medians_of(pairs, true), between = medians_of(pairs, false);
  for (const PairSpeed& p : pairs) {
    const Medians& m = p.same_node ? within : between;
    PairOutlier o{.pair = p, .bandwidth_ratio = p.gb_s / m.gb_s, .latency_ratio = p.latency_us / m.latency_us};
    o.is_slow = o.bandwidth_ratio < least;
    o.is_late = o.latency_ratio > 1 / least;
    if (o.is_slow || o.is_late) outliers.push_back(std::move(o));
  }
  return outliers;
}

std::string pair_text(const PairReport& r) {
  std::string out = fmt::format(
      "# pairs: half a round trip of {} B, and of {} for the bandwidth; {}\n# {:>5} {:>5} {:<24} {:>8} {:>10} {:>8}\n",
      kSmallBytes, format_bytes(static_cast<double>(r.bytes)),
      r.at_once ? "pairs that share no rank at the same time: where they share a link each gets a part of it"
                : "one pair after another, each alone",
      "rank", "rank", "hosts", "link", "latency us", "GB/s");
  for (const PairSpeed& p : r.pairs)
    out += fmt::format("  {:>5} {:>5} {:<24} {:>8} {:>10.2f} {:>8.3f}\n", p.a, p.b,
                       r.hosts[static_cast<size_t>(p.a)] + " " + r.hosts[static_cast<size_t>(p.b)],
                       p.same_node ? "node" : "network", p.latency_us, p.gb_s);
  for (const PairOutlier& o : pair_outliers(r.pairs)) {
    const char* kind = o.pair.same_node ? "within a node" : "between nodes";
    if (o.is_slow)
      out += fmt::format("# slow: {}: {:.0f} % of the median bandwidth {}\n", pair_name(r, o.pair),
                         100 * o.bandwidth_ratio, kind);
    if (o.is_late)
      out +=
          fmt::format("# late: {}: {:.2f} times the median latency {}\n", pair_name(r, o.pair), o.latency_ratio, kind);
  }
  return out;
}

Json pair_json(const PairReport& r) {
  Json pairs = Json::array(), outliers = Json::array();
  for (const PairSpeed& p : r.pairs)
    pairs.push_back({{"a", p.a},
                     {"b", p.b},
                     {"link", p.same_node ? "node" : "network"},
                     {"latency_us", p.latency_us},
                     {"gb_s", p.gb_s}});
  for (const PairOutlier& o : pair_outliers(r.pairs))
    outliers.push_back({{"a", o.pair.a},
                        {"b", o.pair.b},
                        {"hosts", {r.hosts[static_cast<size_t>(o.pair.a)], r.hosts[static_cast<size_t>(o.pair.b)]}},
                        {"bandwidth_ratio", o.bandwidth_ratio},
                        {"latency_ratio", o.latency_ratio},
                        {"slow", o.is_slow},
                        {"late", o.is_late}});
  return {{"order", r.at_once ? "rounds" : "alone"},
          {"bytes", r.bytes},
          {"pairs", std::move(pairs)},
          {"outliers", std::move(outliers)}};
}

}  // namespace rw
