// Ring (Patarasuk & Yuan 2009). Rank r talks to r+1 (sends) and r-1 (receives); the data lies in p chunks.
//
//   reduce_scatter, round k = 0..p-2: rank r sends chunk r-k-1 and adds what it receives to chunk r-k-2 (mod p). Chunk
//   c
//     starts at rank c+1 and is whole at rank c: its sum is (((x[c+1] + x[c+2]) + ...) + x[c]), computed once.
//   all_gather, round k = 0..p-2: rank r sends chunk r-k and receives chunk r-k-1.
//
// all_reduce is both: 2(p-1) rounds, 2(p-1)/p m bytes out and in of every rank, the least there is. With equal chunks
// cut into s segments: steps 2(p-1)s, seconds 2(p-1)(alpha s + m/p beta) when every message waits for the one before,
// and the adding hidden behind the next segment. Parts that are cut unevenly take as long as their largest, each round.
#include "libcore/schedule/collective_ring.h"

#include <algorithm>

#include "libcore/base/check.h"

namespace rw {
namespace {

ElementRange chunk_of(const RingPlace& ring, int c) {
  const int i = ((c % ring.size) + ring.size) % ring.size;
  return {ring.cuts[static_cast<size_t>(i)], ring.cuts[static_cast<size_t>(i) + 1] - ring.cuts[static_cast<size_t>(i)]};
}

// One round: the segments of both chunks side by side. The neighbours see the same chunk in the same round, so the j-th
// segment sent is the j-th received.
void append_round(StepList& steps, const RingPlace& ring, int out, int in, OnArrival arrival) {
  const ElementRange send = chunk_of(ring, out), receive = chunk_of(ring, in);
  const int64_t n_send = segments_of(send, ring.segment), n_receive = segments_of(receive, ring.segment);
  for (int64_t j = 0; j < std::max(n_send, n_receive); ++j) {
    CollectiveStep s{.arrival = arrival};
    if (j < n_send) s.to = ring.next, s.send = segment_of(send, ring.segment, j);
    if (j < n_receive) s.from = ring.previous, s.receive = segment_of(receive, ring.segment, j);
    steps.push_back(s);
  }
}

RingPlace ring_of_all(const PartsShape& shape, int rank) {
  const int p = shape.ranks();
  CHECK(p >= 1 && rank >= 0 && rank < p && shape.segment > 0, "ring: rank %d of %d", rank, p);
  return {.place = rank,
          .size = p,
          .next = (rank + 1) % p,
          .previous = (rank + p - 1) % p,
          .cuts = shape.cuts,
          .segment = shape.segment};
}

}  // namespace

int64_t segments_of(const ElementRange& range, int64_t segment) { return (range.n + segment - 1) / segment; }

ElementRange segment_of(const ElementRange& range, int64_t segment, int64_t i) {
  return {range.begin + i * segment, std::min(segment, range.n - i * segment)};
}

std::vector<int64_t> equal_cuts(int64_t begin, int64_t n, int64_t parts) {
  std::vector<int64_t> cuts(static_cast<size_t>(parts) + 1);
  // n * c / parts without the product, which may leave int64.
  for (int64_t c = 0; c <= parts; ++c) cuts[static_cast<size_t>(c)] = begin + n / parts * c + n % parts * c / parts;
  return cuts;
}

void append_ring_reduce_scatter(StepList& steps, const RingPlace& ring) {
  for (int k = 0; k + 1 < ring.size; ++k)
    append_round(steps, ring, ring.place - k - 1, ring.place - k - 2, OnArrival::received_first);
}

void append_ring_all_gather(StepList& steps, const RingPlace& ring) {
  for (int k = 0; k + 1 < ring.size; ++k)
    append_round(steps, ring, ring.place - k, ring.place - k - 1, OnArrival::copy);
}

StepList reduce_scatter_steps(const PartsShape& shape, int rank) {
  StepList steps;
  append_ring_reduce_scatter(steps, ring_of_all(shape, rank));
  return steps;
}

StepList all_gather_steps(const PartsShape& shape, int rank) {
  StepList steps;
  append_ring_all_gather(steps, ring_of_all(shape, rank));
  return steps;
}

}  // namespace rw
