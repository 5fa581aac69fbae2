// What decides on a row's next token, against naive double precision: rows of odd widths, equal logits, masks, NaN.
#include <limits>
#include <numeric>

#include "tests/kernels/array.h"

namespace rw::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Want {
  std::vector<int32_t> order;  // columns, best first
  double max = 0;
};
Want naive(const float* z, int64_t v) {
  Want w;
  w.order.resize(static_cast<size_t>(v));
  std::iota(w.order.begin(), w.order.end(), 0);
  std::stable_sort(w.order.begin(), w.order.end(), [&](int32_t a, int32_t b) { return z[a] > z[b]; });
  if (v > 0) w.max = static_cast<double>(z[w.order[0]]);
  return w;
}
double weight(float z, double max, double inv_t) { return std::exp((static_cast<double>(z) - max) * inv_t); }

// The result arrays, full of what no kernel writes.
struct Told {
  explicit Told(size_t n, int64_t most_best)
      : facts(
            n,
            {.sum = -1, .raw_sum = -1, .max = -1, .arg = -7, .finite = -7, .drawn = -7, .drawn_z = -1, .column_z = -1}),
        best_z(n * static_cast<size_t>(most_best) + 1, -1),
        best_column(n * static_cast<size_t>(most_best) + 1, -7) {}
  std::vector<SampleFacts> facts;
  std::vector<float> best_z;
  std::vector<int32_t> best_column;
};
Told scan(const Ops& ops, Array& logits, const std::vector<SampleAsk>& asks, int64_t v, int64_t ld, int64_t most_best) {
  Told told(asks.size(), most_best);
  ops.sample_scan({.facts = told.facts.data(),
                   .best_z = told.best_z.data(),
                   .best_column = told.best_column.data(),
                   .logits = logits.f32(),
                   .ask = asks.data(),
                   .n = static_cast<int64_t>(asks.size()),
                   .v = v,
                   .most_best = most_best,
                   .ld = ld},
                  {2});
  CHECK(told.best_z.back() == -1);
  CHECK(told.best_column.back() == -7);
  CHECK(logits.canaries_alive());
  return told;
}

void check_row(const Told& told, size_t i, const std::vector<SampleAsk>& asks, const float* z, int64_t v,
               int64_t most_best) {
  const SampleAsk& ask = asks[i];
  const SampleFacts& f = told.facts[i];
  const Want want = naive(z, v);
  CAPTURE(v);
  CAPTURE(i);
  CHECK(f.finite == 1);
  CHECK(static_cast<double>(f.max) == want.max);
  CHECK(f.arg == want.order[0]);
  if (ask.column >= 0) CHECK(f.column_z == z[ask.column]);
  for (int64_t k = 0; k < most_best; ++k) {
    const size_t at = i * static_cast<size_t>(most_best) + static_cast<size_t>(k);
    if (k >= ask.n_best) {
      CHECK(told.best_column[at] == -7);
    } else if (k >= v) {
      CHECK(told.best_column[at] == -1);
    } else {
      REQUIRE(told.best_column[at] == want.order[static_cast<size_t>(k)]);
      REQUIRE(told.best_z[at] == z[want.order[static_cast<size_t>(k)]]);
    }
  }
  // Sums of f32 weights: the exponent (z - max) / t is rounded twice, an exponential has two units of error, and a sum
  // of v of them fewer than log2(v) + 8 roundings more.
  const double inv_t = static_cast<double>(ask.inv_t);
  double spread = 0, sum = 0, raw_sum = 0;
  for (int64_t c = 0; c < v; ++c) {
    if (z[c] == -kInfinity) continue;
    const double w = weight(z[c], want.max, inv_t), raw = weight(z[c], want.max, 1);
    spread = std::max(spread, std::min(88., (want.max - static_cast<double>(z[c])) * std::max(1., inv_t)));
    sum += w;
    raw_sum += raw;
  }
  const double slack = kU * (2 * spread + 4 + 8 + std::log2(static_cast<double>(v)) + 1);
  if (ask.raw_sum != 0) check_near(f.raw_sum, raw_sum, slack * raw_sum, "raw_sum", static_cast<int64_t>(i));
  else CHECK(f.raw_sum == -1);
  if (ask.inv_t == 0) {
    CHECK(f.sum == -1);
    CHECK(f.drawn == -7);
    return;
  }
  check_near(f.sum, sum, slack * sum, "sum", static_cast<int64_t>(i));
  if (ask.share < 0) {
    CHECK(f.drawn == -7);
    return;
  }
  REQUIRE(f.drawn >= 0);
  REQUIRE(f.drawn < v);
  CHECK(f.drawn_z == z[f.drawn]);
  double before = 0;
  for (int64_t c = 0; c < f.drawn; ++c) before += weight(z[c], want.max, inv_t);
  const double mine = weight(z[f.drawn], want.max, inv_t), target = ask.share * sum;
  CHECK(mine > 0);
  CHECK(before <= target + slack * sum);
  CHECK(before + mine >= target - slack * sum);
}

template <class F>
void each_table(const F& f) {
  each_table_and_type([&](const Ops& ops, DType t) {
    if (t == DType::f32) f(ops);
  });
}

}  // namespace

TEST_CASE("sample_scan: maxima, best logits, sums and draws are the reference's") {
  each_table([](const Ops& ops) {
    for (const int64_t v : {1, 7, 31, 33, 257, 511, 1009, 1537}) {
      const int64_t rows = 4, ld = v + (v % 2), most_best = 40;
      Array logits(DType::f32, rows * ld, static_cast<uint64_t>(v), 9);
      const auto column = [&](int64_t c) { return static_cast<int32_t>(c); };
      const std::vector<SampleAsk> asks = {
          {.row = 0},
          {.row = 2, .n_best = 1, .column = column(v / 2), .raw_sum = 1},
          {.share = 0, .inv_t = 1, .row = 1, .n_best = 40},
          {.share = 0.37, .inv_t = 0.5F, .row = 1, .n_best = 7, .raw_sum = 1},
          {.share = 0.999999, .inv_t = 3, .row = 3, .column = 0},
          {.share = 0.5, .inv_t = 1e-3F, .row = 3},
          {.inv_t = 2, .row = 0, .n_best = 33},
      };
      const Told told = scan(ops, logits, asks, v, ld, most_best);
      for (size_t i = 0; i < asks.size(); ++i) check_row(told, i, asks, logits.f32() + asks[i].row * ld, v, most_best);
    }
  });
}

TEST_CASE("sample_scan: of equal logits the lower columns come first, however many there are") {
  each_table([](const Ops& ops) {
    for (const int64_t v : {40, 700, 5003}) {
      const int64_t rows = 3, most_best = kMostSampleBest;
      Array logits(DType::f32, rows * v, 5, 2);
      for (int64_t c = 0; c < v; ++c) {
        logits.set(c, 1.5);                                            // all equal
        logits.set(v + c, static_cast<double>(c % 3));                 // three values
        if (c % 2 == 1) logits.set(2 * v + c, c % 4 == 1 ? 0. : -0.);  // zeros of both signs are equal
      }
      std::vector<SampleAsk> asks;
      for (int32_t r = 0; r < rows; ++r)
        asks.push_back({.share = 0.7, .inv_t = 1, .row = r, .n_best = static_cast<int32_t>(most_best) - 3 * r});
      const Told told = scan(ops, logits, asks, v, v, most_best);
      for (size_t i = 0; i < asks.size(); ++i) check_row(told, i, asks, logits.f32() + asks[i].row * v, v, most_best);
    }
  });
}

TEST_CASE("sample_scan: masked columns have no weight, rows without a finite logit say so") {
  each_table([](const Ops& ops) {
    const int64_t v = 613, rows = 6, best = 200;
    Array logits(DType::f32, rows * v, 3, 4);
    float* const z = logits.f32();
    for (int64_t c = 0; c < v; ++c) {
      if (c % 5 != 2) z[c] = -kInfinity;    // 123 are left, and masked ones follow among the best
      if (c != 307) z[v + c] = -kInfinity;  // one
      z[2 * v + c] = -kInfinity;            // none
    }
    z[3 * v + 611] = std::numeric_limits<float>::quiet_NaN();
    z[4 * v] = kInfinity;
    std::vector<SampleAsk> asks;
    for (int32_t r = 0; r < rows; ++r)
      asks.push_back({.share = 0.9, .inv_t = 1, .row = r, .n_best = static_cast<int32_t>(best), .raw_sum = 1});
    const Told told = scan(ops, logits, asks, v, v, best);
    for (const size_t i : {size_t{0}, size_t{1}, size_t{5}})
      check_row(told, i, asks, z + static_cast<int64_t>(i) * v, v, best);
    CHECK(told.facts[1].drawn == 307);
    CHECK(told.facts[2].finite == 1);
    CHECK(told.facts[2].max == -kInfinity);
    CHECK(told.facts[3].finite == 0);
    CHECK(told.facts[4].finite == 0);
    // No columns, and nobody who asks.
    const Told nothing = scan(ops, logits, {{.share = 0.5, .inv_t = 1, .n_best = 2}}, 0, v, 2);
    CHECK(nothing.facts[0].finite == 1);
    CHECK(nothing.facts[0].max == -kInfinity);
    scan(ops, logits, {}, v, v, 2);
  });
}

}  // namespace rw::test
