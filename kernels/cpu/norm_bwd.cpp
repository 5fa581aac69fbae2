#include "kernels/cpu/lanes.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/variant.h"

namespace rw::RW_ISA {
namespace {

constexpr int64_t kRowsAtOnce = 4;

float mean_of(const NormBwd& a, int64_t r) { return a.kind == NormKind::layer ? a.mean[r] : 0.0f; }

// With h = (x - mean) * rstd and g = w * d_y:  d_x = rstd * (g - mean(g) - h * mean(g * h)); RMSNorm lacks mean(g).
template <class T>
void d_x_row(const NormBwd& a, int64_t r) {
  const int64_t c = a.c, at = r * c;
  const T *d_y = static_cast<const T*>(a.d_y) + at, *x = static_cast<const T*>(a.x) + at;
  const float mean = mean_of(a, r), rstd = a.rstd[r];
  vf sum[4] = {}, dot[4] = {};
  each_vector4(c, [&](int64_t i, int k, auto part) RW_LAMBDA {
    const vf g = load(a.w + i, part) * load(d_y + i, part);
    sum[k] += g;
    dot[k] += g * (load(x + i, part) - mean);
  });
  const float n = static_cast<float>(c);
  const float mean_g = a.kind == NormKind::layer ? hsum((sum[0] + sum[1]) + (sum[2] + sum[3])) / n : 0.0f;
  const float mean_gh = hsum((dot[0] + dot[1]) + (dot[2] + dot[3])) * rstd / n;
  T* d_x = static_cast<T*>(a.d_x) + at;
  const auto through = [&](int64_t i, auto part) RW_LAMBDA {
    const vf h = (load(x + i, part) - mean) * rstd;
    return rstd * (load(a.w + i, part) * load(d_y + i, part) - mean_g - h * mean_gh);
  };
  if (a.d_res) {
    const T* d_res = static_cast<const T*>(a.d_res) + at;
    each_vector(
        0, c, [&](int64_t i, auto part) RW_LAMBDA { store(d_x + i, through(i, part) + load(d_res + i, part), part); });
  } else {
    each_vector(0, c, [&](int64_t i, auto part) RW_LAMBDA { store(d_x + i, through(i, part), part); });
  }
}

// Adds R rows to the columns [begin, end) of d_w and d_b.
template <class T, int64_t R>
void d_w_rows(const NormBwd& a, int64_t r, Range columns) {
  const T *d_y = static_cast<const T*>(a.d_y) + r * a.c, *x = static_cast<const T*>(a.x) + r * a.c;
  float mean[R];
  for (int64_t k = 0; k < R; ++k) mean[k] = mean_of(a, r + k);
  if (a.d_w) {
    each_vector(columns.begin, columns.end, [&](int64_t i, auto part) RW_LAMBDA {
      vf sum = {};
      for (int64_t k = 0; k < R; ++k) {
        sum += load(d_y + k * a.c + i, part) * ((load(x + k * a.c + i, part) - mean[k]) * a.rstd[r + k]);
      }
      store(a.d_w + i, load(a.d_w + i, part) + sum, part);
    });
  }
  if (a.d_b) {
    each_vector(columns.begin, columns.end, [&](int64_t i, auto part) RW_LAMBDA {
      vf sum = {};
      for (int64_t k = 0; k < R; ++k) sum += load(d_y + k * a.c + i, part);
      store(a.d_b + i, load(a.d_b + i, part) + sum, part);
    });
  }
}

// Chunks of rows small enough for the caches: first the sums over rows, split over threads by columns, so that their
// order does not depend on the number of threads; then d_x, split by rows, which may overwrite d_y.
template <class T>
void run(const NormBwd& a, int64_t part, int64_t parts) {
  constexpr int64_t kChunkBytes = 512 << 10;
  const int64_t row_bytes = a.c * static_cast<int64_t>(sizeof(T)) * 2 + 1;
  const int64_t chunk = (kChunkBytes / row_bytes + kRowsAtOnce) / kRowsAtOnce * kRowsAtOnce;
  const Range columns = piece_of(a.c, 64, part, parts);
  if (a.write == Write::overwrite) {
    for (int64_t i = columns.begin; i < columns.end; ++i) {
      if (a.d_w) a.d_w[i] = 0;
      if (a.d_b) a.d_b[i] = 0;
    }
  }
  for (int64_t first = 0; first < a.rows; first += chunk) {
    const int64_t last = first + chunk < a.rows ? first + chunk : a.rows;
    if (a.d_w || a.d_b) {
      int64_t r = first;
      for (; r + kRowsAtOnce <= last; r += kRowsAtOnce) d_w_rows<T, kRowsAtOnce>(a, r, columns);
      for (; r < last; ++r) d_w_rows<T, 1>(a, r, columns);
    }
    if (a.d_x) {
      if (parts > 1 && (a.d_w || a.d_b) && a.d_x == a.d_y) {
#pragma omp barrier  // the others have read d_y
      }
      const Range rows = piece_of(last - first, 1, part, parts);
      for (int64_t r = rows.begin; r < rows.end; ++r) d_x_row<T>(a, first + r);
    }
  }
}

}  // namespace

void norm_bwd(const NormBwd& a, Stream s) {
  CHECK(a.kind == NormKind::rms || a.mean || a.rows == 0, "norm_bwd: layer norm needs mean");
  const int64_t worth = a.rows / row_grain(a.c) + 1;
  with_type(a.t, [&](auto element) {
    using T = decltype(element);
    parallel_parts(worth < s.threads ? worth : s.threads, [&](int64_t part, int64_t parts) { run<T>(a, part, parts); });
  });
}

}  // namespace rw::RW_ISA
