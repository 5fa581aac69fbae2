// Seconds of collectives over links that are all alike, in closed form: what collective_price.cpp finds by running the
// step lists. And measured or published times of collectives, fitted by lines, scaled to other group sizes.
//
// n bytes, p ranks; a message of b bytes takes alpha + b * beta (WireCost). The formulas: Thakur, Rabenseifner & Gropp
// 2005 (ring, doubling); Sanders, Speck & Träff 2009 (pipelined trees).
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "libcore/comm/watch.h"
#include "libcore/schedule/collective.h"
#include "libcore/spec/cluster_spec.h"

namespace rw {

// 2(p-1) rounds of a chunk each.
inline double ring_all_reduce_s(double n, int64_t p, WireCost w) {
  const auto rounds = static_cast<double>(2 * (p - 1));
  return rounds * (w.alpha_s + n / static_cast<double>(p) * w.s_per_byte);
}
// reduce_scatter or all_gather of equal parts that are n bytes together.
inline double ring_parts_s(double n, int64_t p, WireCost w) { return ring_all_reduce_s(n, p, w) / 2; }

inline int64_t log2_ceil(int64_t p) { return std::bit_width(static_cast<uint64_t>(p - 1)); }
// Rounds of recursive doubling: two more when p is no power of two.
inline int64_t doubling_rounds(int64_t p) {
  return std::bit_width(static_cast<uint64_t>(p)) - 1 + (std::has_single_bit(static_cast<uint64_t>(p)) ? 0 : 2);
}
inline double doubling_all_reduce_s(double n, int64_t p, WireCost w) {
  return static_cast<double>(doubling_rounds(p)) * (w.alpha_s + n * w.s_per_byte);
}
// Data that flow in segments through a chain or tree: `latency` is what the messages on the longest way take without
// data, `flow` the seconds that all the data take through the busiest link. With s segments latency * (1 + s / depth) +
// flow * (1 + depth / s), least at s = depth * sqrt(flow / latency).
inline double pipelined_s(double latency, double flow) {
  const double root = std::sqrt(latency) + std::sqrt(flow);
  return root * root;
}

// A collective that was measured or published, as lines over its bytes.
struct FittedCollective {
  CommKind kind = CommKind::all_reduce;
  int64_t ranks = 2;
  std::vector<LinkSegment> segments;  // ascending from_bytes
  Provenance provenance = Provenance::table;

  // Error{usage} names the kind, or what is wrong with the segments; `where`: the cluster's file and table.
  static FittedCollective of(const CollectiveFit& fit, const std::string& where);
};

struct FitScale {
  double bytes = 0;
  int64_t ranks = 2;     // of the group that is asked for
  double base_hops = 0;  // what starting a collective takes, in rounds' latencies
  double slowdown = 1;   // of the bandwidth
};
// The line's seconds, for another number of ranks: the latency in proportion to base_hops + rounds of a ring, the
// bytes' time to a ring's bytes per rank. More bytes never take less: a line holds only up to what the
// next one says where it starts.
double fitted_seconds(const FittedCollective& fit, const FitScale& scale);
// The fit of that kind (reduce_scatter and all_gather stand for each other: they move the same data) whose number of
// ranks is nearest by ratio; null when there is none.
const FittedCollective* find_fit(const std::vector<FittedCollective>& fits, CommKind kind, int64_t ranks);

// The provenance of that name; guess for any other.
Provenance provenance_of(const std::string& name);

}  // namespace rw
