// What every two ranks of a job reach between them: latency of small messages, bandwidth of large ones.
//
// A latency is half a round trip of 8 bytes, a bandwidth the bytes of a message over half its round trip, both the
// median of several. Pairs are measured one after another, or in rounds of pairs that share no rank, at the same time
// (a round-robin tournament: n - 1 rounds for n ranks): quicker, and pairs that share a link then show it.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "libcore/base/json.h"
#include "libcore/comm/comm.h"

namespace rw {

using RankPair = std::pair<int, int>;  // the lower first
// Every pair once; no rank twice in a round. n - 1 rounds, n of an odd number of ranks (each rests once).
std::vector<std::vector<RankPair>> pair_rounds(int ranks);

struct PairSpeed {
  int a = 0, b = 0;  // ranks, a < b
  bool same_node = true;
  double latency_us = 0, gb_s = 0;
  std::vector<double> latencies_us, times_us;  // the samples: half round trips of small and of large messages
};

struct PairJob {
  Comm& comm;
  bool at_once = false;  // rounds of pairs; otherwise each pair alone
  int64_t bytes = 4 << 20;
  int64_t samples = 7;
};
// Collective; the same on all ranks, by a and b. A rank that does not answer is an Error that names it.
std::vector<PairSpeed> measure_pairs(const PairJob& job);

// Collective over all ranks, measured between two of them: microseconds of half a round trip, `samples` of `calls`
// round trips each; empty on ranks other than a and b.
struct PingPong {
  RankPair pair;
  void* data = nullptr;  // (bytes)
  int64_t bytes = 0, samples = 5, calls = 1, warmup = 1;
};
std::vector<double> time_ping_pong(Comm& comm, const PingPong& ping);

// A pair that is worse than the median of its kind (within a node, between nodes): less than `least` of the bandwidth,
// or more than 1 / `least` times the latency.
struct PairOutlier {
  PairSpeed pair;
  double bandwidth_ratio = 1, latency_ratio = 1;  // to the median
  bool is_slow = false, is_late = false;
};
std::vector<PairOutlier> pair_outliers(const std::vector<PairSpeed>& pairs, double least = 0.8);

struct PairReport {
  std::vector<PairSpeed> pairs;
  std::vector<std::string> hosts;  // (ranks)
  bool at_once = false;
  int64_t bytes = 0;
};
std::string pair_text(const PairReport& report);  // a line a pair, then the outliers
Json pair_json(const PairReport& report);

}  // namespace rw
