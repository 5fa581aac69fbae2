// Splits work over the stream's OpenMP team. The callables run at the same time on several threads and must not throw.
#pragma once
#include <omp.h>

#include <cstdint>

namespace rw {
namespace {

struct Range {
  int64_t begin, end;
};

// Piece `part` of `parts` of [0, n); pieces begin at multiples of `grain` and may be empty.
[[maybe_unused]] Range piece_of(int64_t n, int64_t grain, int64_t part, int64_t parts) {
  const int64_t grains = (n + grain - 1) / grain;
  const int64_t begin = grains * part / parts * grain, end = grains * (part + 1) / parts * grain;
  return {begin < n ? begin : n, end < n ? end : n};
}

// Calls f(part, parts) once for every part on a thread of its own; parts <= threads is what the runtime grants. f may
// use `#pragma omp barrier` when parts > 1.
template <class F>
void parallel_parts(int64_t threads, const F& f) {
  if (threads <= 1) {
    f(int64_t{0}, int64_t{1});
    return;
  }
#pragma omp parallel num_threads(static_cast <int>(threads))
  f(int64_t{omp_get_thread_num()}, int64_t{omp_get_num_threads()});
}

// Calls f(begin, end) for contiguous pieces that cover [0, n): at most `threads` of them, beginning at multiples of
// `grain`, so that small loops stay on one thread.
template <class F>
void parallel_ranges(int64_t threads, int64_t n, int64_t grain, const F& f) {
  if (n <= 0) return;
  const int64_t grains = (n + grain - 1) / grain;
  parallel_parts(grains < threads ? grains : threads, [&](int64_t part, int64_t parts) {
    const Range r = piece_of(n, grain, part, parts);
    if (r.begin < r.end) f(r.begin, r.end);
  });
}

}  // namespace
}  // namespace rw
