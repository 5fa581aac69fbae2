// Recursive doubling (Thakur, Rabenseifner & Gropp 2005): ranks that differ in one bit exchange all their data and both
// add it, the lower rank's operand first, so both hold the same bits.
//
// p is a power of two, q = log2 p: q rounds, q m bytes out and in, seconds q (alpha + m beta): the fewest rounds, for
// sizes where alpha is what counts. Otherwise the first 2(p - 2^q) ranks pair up before: the odd one gives its data to
// the even one and gets the result at the end, two rounds more.
#include <bit>

#include "libcore/schedule/collective_algorithms.h"
#include "libcore/schedule/collective_ring.h"

namespace rw {

StepList doubling_steps(const AllReduceShape& shape, int rank) {
  StepList steps;
  const int base = static_cast<int>(std::bit_floor(static_cast<unsigned>(shape.ranks))), extra = shape.ranks - base;
  const ElementRange all{0, shape.n};
  const auto append = [&](int32_t to, int32_t from, OnArrival arrival) {
    for (int64_t i = 0; i < segments_of(all, shape.segment); ++i) {
      const ElementRange part = segment_of(all, shape.segment, i);
      steps.push_back({.arrival = arrival,
                       .to = to,
                       .from = from,
                       .send = to < 0 ? ElementRange{} : part,
                       .receive = from < 0 ? ElementRange{} : part});
    }
  };
  const bool paired = rank < 2 * extra, gives = paired && rank % 2 == 1;
  if (gives) {
    append(rank - 1, -1, OnArrival::copy);
    append(-1, rank - 1, OnArrival::copy);
    return steps;
  }
  if (paired) append(-1, rank + 1, OnArrival::received_second);
  const int place = paired ? rank / 2 : rank - extra;
  for (int bit = 1; bit < base; bit *= 2) {
    const int other = place ^ bit;
    const int32_t peer = other < extra ? 2 * other : other + extra;
    append(peer, peer, other < place ? OnArrival::received_first : OnArrival::received_second);
  }
  if (paired) append(rank + 1, -1, OnArrival::copy);
  return steps;
}

}  // namespace rw
