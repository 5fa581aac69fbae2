#include "kernels/cpu/sample_scan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/cpu/parallel.h"
#include "libcore/base/check.h"

namespace rw {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kLeastExponent = -87.33F;  // below it a weight is 0

double weight(float z, float max, float inv_t) {
  const float x = (z - max) * inv_t;
  return x < kLeastExponent ? 0 : std::exp(static_cast<double>(x));
}

double sum_of(const float* z, int64_t v, float max, float inv_t) {
  double sum = 0;
  for (int64_t i = 0; i < v; ++i) sum += weight(z[i], max, inv_t);
  return sum;
}

// The column where the weights exceed `target`; the last one with a weight where rounding keeps them below.
int32_t column_at(const float* z, int64_t v, float max, float inv_t, double target) {
  int32_t last = -1;
  for (int64_t i = 0; i < v; ++i) {
    const double w = weight(z[i], max, inv_t);
    if (w == 0) continue;
    last = static_cast<int32_t>(i);
    target -= w;
    if (target < 0) break;
  }
  return last;
}

void best_of(const SampleScan& a, int64_t at, const float* z) {
  const int64_t n = std::min<int64_t>(a.ask[at].n_best, a.v);
  std::vector<int32_t> column(static_cast<size_t>(a.v));
  std::iota(column.begin(), column.end(), 0);
  std::partial_sort(column.begin(), column.begin() + n, column.end(),
                    [&](int32_t x, int32_t y) { return z[x] != z[y] ? z[x] > z[y] : x < y; });
  for (int64_t i = 0; i < a.ask[at].n_best; ++i) {
    a.best_column[at * a.most_best + i] = i < n ? column[static_cast<size_t>(i)] : -1;
    if (i < n) a.best_z[at * a.most_best + i] = z[column[static_cast<size_t>(i)]];
  }
}

void scan(const SampleScan& a, int64_t at) {
  const SampleAsk& ask = a.ask[at];
  SampleFacts& facts = a.facts[at];
  const float* z = a.logits + ask.row * (a.ld != 0 ? a.ld : a.v);
  facts.finite = std::all_of(z, z + a.v, [](float x) { return x < kInf; }) ? 1 : 0;
  if (facts.finite == 0) return;
  const float* const largest = std::max_element(z, z + a.v);  // the first of equals
  facts.max = a.v == 0 ? -kInf : *largest;
  if (facts.max == -kInf) return;
  facts.arg = static_cast<int32_t>(largest - z);
  if (ask.raw_sum != 0) facts.raw_sum = sum_of(z, a.v, facts.max, 1);
  if (ask.inv_t > 0) facts.sum = sum_of(z, a.v, facts.max, ask.inv_t);
  if (ask.inv_t > 0 && ask.share >= 0) {
    facts.drawn = column_at(z, a.v, facts.max, ask.inv_t, ask.share * facts.sum);
    facts.drawn_z = z[facts.drawn];
  }
  if (ask.column >= 0) facts.column_z = z[ask.column];
  best_of(a, at, z);
}

}  // namespace

void cpu_sample_scan(const SampleScan& a, Stream s) {
  CHECK(a.most_best <= kMostSampleBest, "sample_scan: %lld best logits, at most %lld",
        static_cast<long long>(a.most_best), static_cast<long long>(kMostSampleBest));
  parallel_ranges(s.threads, a.n, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) scan(a, i);
  });
}

}  // namespace rw
