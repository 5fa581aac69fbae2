#include "libcore/tensor/tensor_stats.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "libcore/tensor/element_stream.h"

namespace rw {

namespace {

// Mean and sum of squared distances from it, of a part and then of all: no cancellation, whatever the mean (Chan,
// Golub, LeVeque 1983).
struct Moments {
  int64_t n = 0;
  double mean = 0, squares = 0;

  void join(const Moments& b) {
    if (b.n == 0) return;
    const double total = static_cast<double>(n + b.n), delta = b.mean - mean;
    const double share = static_cast<double>(b.n) / total;
    squares += b.squares + delta * delta * static_cast<double>(n) * share;
    mean += delta * share;
    n += b.n;
  }
};

// Adds a part; leaves its finite elements in front of `x`.
Moments add_part(TensorStats& stats, double* x, int64_t n) {
  int64_t finite = 0;
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double v = x[i];
    if (std::isnan(v)) {
      ++stats.n_nan;
    } else if (std::isinf(v)) {
      ++stats.n_inf;
    } else {
      stats.n_zero += v == 0;
      sum += v;
      x[finite++] = v;
    }
  }
  stats.n += n;
  Moments part{.n = finite};
  if (finite == 0) return part;
  part.mean = sum / static_cast<double>(finite);
  for (int64_t i = 0; i < finite; ++i) part.squares += (x[i] - part.mean) * (x[i] - part.mean);
  return part;
}

}  // namespace

TensorStats tensor_stats(const TensorSource& source, const TensorInfo& tensor,
                         const std::function<void(int64_t bytes)>& progress) {
  const int64_t width = dtype_bytes(tensor.dtype), most = std::min(n_elements(tensor.shape), kStreamElements);
  std::vector<char> raw(static_cast<size_t>(most * width));
  std::vector<double> x(static_cast<size_t>(most));
  TensorStats stats;
  Moments all;
  for_each_part(tensor.shape, kStreamElements, [&](const Box& box) {
    const int64_t n = box.size();
    source.read(tensor.name, box, tensor.dtype, raw.data());
    to_f64(raw.data(), tensor.dtype, x.data(), n);
    const Moments part = add_part(stats, x.data(), n);
    if (part.n > 0) {
      const auto [low, high] = std::minmax_element(x.begin(), x.begin() + part.n);
      stats.min = all.n == 0 ? *low : std::min(stats.min, *low);
      stats.max = all.n == 0 ? *high : std::max(stats.max, *high);
    }
    all.join(part);
    if (progress) progress(n * width);
  });
  stats.mean = all.mean;
  stats.std = all.n == 0 ? 0 : std::sqrt(all.squares / static_cast<double>(all.n));
  return stats;
}

}  // namespace rw
