#include "kernels/cpu/lanes.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/variant.h"

namespace rw::RW_ISA {
namespace {

// R rows are read side by side, so that d_bias is loaded and stored once for all of them.
template <class T, int64_t R>
void add_rows(float* d_bias, const T* d_y, int64_t ld, Range columns) {
  each_vector(columns.begin, columns.end, [&](int64_t i, auto part) RW_LAMBDA {
    vf sum = load(d_y + i, part);
    for (int64_t k = 1; k < R; ++k) sum += load(d_y + k * ld + i, part);
    store(d_bias + i, load(d_bias + i, part) + sum, part);
  });
}

}  // namespace

// Threads take columns: each column is summed in row order, whatever their number.
void bias_bwd(const BiasBwd& a, Stream s) {
  constexpr int64_t kRows = 8;
  const int64_t ld = a.ld ? a.ld : a.n, worth = a.rows * a.n / kElementGrain + 1;
  with_type(a.t, [&](auto element) {
    using T = decltype(element);
    const T* d_y = static_cast<const T*>(a.d_y);
    parallel_ranges(worth < s.threads ? worth : s.threads, a.n, 64, [&](int64_t begin, int64_t end) {
      if (a.write == Write::overwrite) {
        for (int64_t i = begin; i < end; ++i) a.d_bias[i] = 0;
      }
      int64_t r = 0;
      for (; r + kRows <= a.rows; r += kRows) add_rows<T, kRows>(a.d_bias, d_y + r * ld, ld, {begin, end});
      for (; r < a.rows; ++r) add_rows<T, 1>(a.d_bias, d_y + r * ld, ld, {begin, end});
    });
  });
}

}  // namespace rw::RW_ISA
