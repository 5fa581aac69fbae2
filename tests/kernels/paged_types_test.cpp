// Pages whose type is not that of the batch: other floating-point types, and 8 bits with scales.
#include "tests/kernels/paged_pool.h"

using namespace rw;
using namespace rw::test;

namespace {

constexpr DType kPageTypes[] = {DType::f32, DType::bf16, DType::f16, DType::i8};

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all = {
      {1, 1, 64, {1}},        {2, 2, 64, {31, 33}}, {8, 2, 128, {64, 5}}, {7, 1, 80, {100}},
      {6, 3, 20, {0, 70, 9}}, {5, 5, 1, {3}},       {3, 1, 33, {65}},
  };
  return all;
}

// max |x| over a token's head, for every element of it.
Values largest(const Values& x, int64_t d) {
  Values max(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t first = i - i % static_cast<size_t>(d);
    for (size_t j = 0; j < static_cast<size_t>(d); ++j) max[i] = std::fmax(max[i], std::fabs(x[first + j]));
  }
  return max;
}

}  // namespace

TEST_CASE("paged attention: any type of pages gives what the definition makes of what they hold") {
  for (DType t : kTypes) {
    for (DType kv_t : kPageTypes) {
      if (kv_t == t) continue;
      for (const Shape& s : shapes()) {
        const Inputs in = random_inputs(s, t);
        for (const Backend& b : backends(t)) {
          CAPTURE(describe(s, b, t));
          CAPTURE(std::string(dtype_name(kv_t)));
          Run run(s, t, in);
          Pool pool(s, t, 7, kv_t);
          pool.fill(b, run, 2);
          const Inputs held = pool.held_inputs(in);
          const Reference r = reference(s, held, t, false, static_cast<double>(run.scale));
          pool.result.resize(r.o.value.size());
          pool.attend(b, run, std::vector<int32_t>(s.lengths.size(), 0), s.lengths, 2);
          CHECK(worst(r.o, pool.result).ratio <= 1);
          size_t other = 0;
          for (size_t i = 0; i < in.k.size() && kv_t != DType::i8; ++i)
            other += held.k[i] != static_cast<double>(rounded(in.k[i], kv_t)) ||
                     held.v[i] != static_cast<double>(rounded(in.v[i], kv_t));
          CHECK(other == 0);
        }
      }
    }
  }
}

// An element is off by half a step of max / 127 (and an ulp or two of that). A score then is off by e = scale * sum of
// |q| times that, a probability by a factor within exp(+-2 e), the output by that and by what values are off.
TEST_CASE("paged attention: 8 bits stay within half a step of the exact keys and values") {
  for (DType t : kTypes) {
    for (const Shape& s : shapes()) {
      const Inputs in = random_inputs(s, t);
      const Reference exact = reference(s, in, t, false, static_cast<double>(Run(s, t, in).scale));
      const Values k_max = largest(in.k, s.d), v_max = largest(in.v, s.d);
      for (const Backend& b : backends(t)) {
        CAPTURE(describe(s, b, t));
        Run run(s, t, in);
        Pool pool(s, t, 16, DType::i8);
        pool.fill(b, run, 1);
        const Inputs held = pool.held_inputs(in);
        constexpr double kHalf = 0.50001 / 127;
        size_t apart = 0;
        for (size_t i = 0; i < in.k.size(); ++i)
          apart +=
              std::fabs(held.k[i] - in.k[i]) > kHalf * k_max[i] || std::fabs(held.v[i] - in.v[i]) > kHalf * v_max[i];
        pool.result.resize(exact.o.value.size());
        pool.attend(b, run, std::vector<int32_t>(s.lengths.size(), 0), s.lengths, 2);
        const auto largest_of = [](const Values& x) { return x.empty() ? 0 : *std::max_element(x.begin(), x.end()); };
        const double k_top = largest_of(k_max), v_top = largest_of(v_max);
        for (size_t i = 0; i < exact.o.value.size(); ++i) {
          double q_sum = 0;
          const size_t first = i - i % static_cast<size_t>(s.d);
          for (size_t c = first; c < first + static_cast<size_t>(s.d); ++c) q_sum += std::fabs(in.q[c]);
          const double e = static_cast<double>(run.scale) * q_sum * kHalf * k_top;
          const double bound = 2 * exact.o.bound[i] + std::expm1(2 * e) * v_top + kHalf * v_top;
          apart += !(std::fabs(pool.result[i] - exact.o.value[i]) <= bound);
        }
        CHECK(apart == 0);
      }
    }
  }
}

// Values so small that f16 hardly has their products with probabilities. Where values are rounded to t before they are
// multiplied, that adds to an output at most what rounding the probabilities does: the bound counts twice.
TEST_CASE("paged attention: small values of 8 bits, by the definition in double precision") {
  for (DType t : kTypes) {
    for (const Shape& s : {Shape{2, 1, 64, {100, 33}}, Shape{5, 1, 128, {70}}}) {
      for (const double range : {0.05, 1e-3}) {
        Inputs in = random_inputs(s, t);
        for (double& v : in.v) v = static_cast<double>(rounded(v * range, t));
        for (const Backend& b : backends(t)) {
          CAPTURE(describe(s, b, t));
          CAPTURE(range);
          Run run(s, t, in);
          Pool pool(s, t, 16, DType::i8);
          pool.fill(b, run, 1);
          const Reference r = reference(s, pool.held_inputs(in), t, false, static_cast<double>(run.scale));
          for (bool fixed : {false, true}) {
            pool.fixed_order = fixed;
            pool.result.assign(r.o.value.size(), 0);
            pool.attend(b, run, std::vector<int32_t>(s.lengths.size(), 0), s.lengths, 2);
            CHECK(worst(r.o, pool.result).ratio <= 2);
          }
        }
      }
    }
  }
}

TEST_CASE("paged attention: over 8 bits too a query's bits do not depend on chunks, batch mates or threads") {
  const Shape s{6, 2, 64, {150, 0, 37, 97}};
  for (DType t : kTypes) {
    const Inputs in = random_inputs(s, t);
    for (const Backend& b : backends(t)) {
      CAPTURE(describe(s, b, t));
      Run run(s, t, in);
      Pool pool(s, t, 16, DType::i8);
      pool.fixed_order = true;
      pool.fill(b, run, 3);
      const std::vector<double> empty(static_cast<size_t>(s.tokens() * run.q_width()));
      pool.result = empty;
      pool.attend(b, run, {0, 0, 0, 0}, s.lengths, 1);
      const std::vector<double> once = pool.result;
      for (int32_t chunk : {1, 17, 64}) {
        for (int threads : teams({1, 3})) {
          pool.result = empty;
          for (int32_t from = 0; from < 150; from += chunk) {
            std::vector<int32_t> first, n;
            for (int32_t length : s.lengths) {
              first.push_back(std::min(from, length));
              n.push_back(std::min(chunk, length - first.back()));
            }
            pool.attend(b, run, first, n, threads);
          }
          CHECK(pool.result == once);
        }
      }
    }
  }
}

TEST_CASE("kv_write: 8 bits of zeros, of tiny numbers and of what is not finite") {
  const Shape s{1, 1, 5, {4}};
  Inputs in = random_inputs(s, DType::f32);
  for (size_t c = 0; c < 5; ++c) in.k[c] = 0, in.k[5 + c] = 1e-35, in.v[5 + c] = 0;
  in.k[12] = INFINITY, in.v[16] = NAN;
  for (const Backend& b : backends(DType::f32)) {
    CAPTURE(std::string(b.name));
    Run run(s, DType::f32, in);
    Pool pool(s, DType::f32, 4, DType::i8);
    pool.fill(b, run, 1);
    const Inputs held = pool.held_inputs(in);
    for (size_t i = 0; i < 20; ++i) {
      const size_t token = i / 5;
      if (token < 2) CHECK(held.k[i] == 0);
      CHECK(std::isfinite(held.k[i]) == (token != 2));
      CHECK(std::isfinite(held.v[i]) == (token != 3));
    }
  }
}
