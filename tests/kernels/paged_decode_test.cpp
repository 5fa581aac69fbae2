// Decoding over contexts that are cut into chunks: of 512 positions, or of more where there would be more than 16.
#include "tests/kernels/paged_pool.h"

using namespace rw;
using namespace rw::test;

namespace {

std::vector<int32_t> last_of(const Shape& s) {
  std::vector<int32_t> last;
  for (int32_t n : s.lengths) last.push_back(n - 1);
  return last;
}

}  // namespace

TEST_CASE("paged decode: long contexts, by the definition in double precision") {
  const Shape long_ones{4, 2, 24, {513, 1100, 512, 40}}, longest{1, 1, 3, {8200}};
  for (DType t : kTypes) {
    for (DType kv_t : {t, DType::i8}) {
      for (const Shape& s : {long_ones, longest}) {
        if (s.d == 3 && t != DType::f32) continue;
        const Inputs in = random_inputs(s, t);
        Reference r = reference(s, in, t, false, s.scale());
        bool i8_known = kv_t != DType::i8;
        for (const Backend& b : backends(t)) {
          CAPTURE(describe(s, b, t));
          CAPTURE(std::string(dtype_name(kv_t)));
          Run run(s, t, in);
          Pool pool(s, t, 16, kv_t);
          pool.fill(b, run, 1);
          if (!i8_known) r = reference(s, pool.held_inputs(in), t, false, static_cast<double>(run.scale));
          i8_known = true;
          for (int threads : teams({1, 2, 7})) {
            pool.result = r.o.value;
            pool.attend(b, run, last_of(s), std::vector<int32_t>(s.lengths.size(), 1), threads);
            CHECK(worst(r.o, pool.result).ratio <= 1);
          }
        }
      }
    }
  }
}

TEST_CASE("paged decode: bits do not depend on threads, batch mates, or on what else the batch does") {
  const Shape s{6, 3, 16, {1300, 5, 700, 100, 2100}};
  const auto n = s.lengths.size();
  for (DType t : kTypes) {
    const Inputs in = random_inputs(s, t);
    for (const Backend& b : backends(t)) {
      CAPTURE(describe(s, b, t));
      Run run(s, t, in);
      Pool pool(s, t, 16);
      pool.fill(b, run, 1);
      const std::vector<double> empty(static_cast<size_t>(s.tokens() * run.q_width()));
      pool.result = empty;
      pool.attend(b, run, last_of(s), std::vector<int32_t>(n, 1), 1);
      const std::vector<double> once = pool.result;
      for (bool fixed : {false, true}) {
        pool.fixed_order = fixed;
        for (int threads : teams({2, 3, 16})) {
          pool.result = empty;
          pool.attend(b, run, last_of(s), std::vector<int32_t>(n, 1), threads);
          CHECK(pool.result == once);
          pool.result = empty;
          for (size_t i = 0; i < n; ++i) {
            std::vector<int32_t> alone(n);
            alone[i] = 1;
            pool.attend(b, run, last_of(s), alone, threads);
          }
          CHECK(pool.result == once);
        }
        pool.result = empty;  // beside a prefill of the second to last
        pool.attend(b, run, {1299, 4, 699, 60, 2099}, {1, 1, 1, 40, 1}, 3);
        const auto row = [&](const std::vector<double>& x, int64_t i) {
          return std::vector<double>(x.begin() + i * run.q_width(), x.begin() + (i + 1) * run.q_width());
        };
        for (size_t i : {0u, 1u, 2u, 4u}) CHECK(row(pool.result, run.cu[i + 1] - 1) == row(once, run.cu[i + 1] - 1));
      }
    }
  }
}
