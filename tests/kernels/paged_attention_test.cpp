#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "tests/kernels/paged_pool.h"

using namespace rw;
using namespace rw::test;

namespace {

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all = {
      {1, 1, 64, {1}},        {2, 2, 64, {31, 33}}, {8, 2, 128, {64, 5}},  {7, 1, 80, {100}},
      {6, 3, 20, {0, 70, 9}}, {5, 5, 1, {3, 40}},   {3, 1, 33, {65}},      {12, 1, 64, {32}},
      {2, 1, 256, {97}},      {2, 2, 8, {0}},       {20, 1, 24, {34, 36}},
  };
  return all;
}

}  // namespace

TEST_CASE("paged attention: the definition in double precision, and within both bounds of dense attention") {
  for (DType t : kTypes) {
    for (const Shape& s : shapes()) {
      const Inputs in = random_inputs(s, t);
      const Reference r = reference(s, in, t, false, static_cast<double>(Run(s, t, in).scale));
      for (const Backend& b : backends(t)) {
        for (int64_t page : kFewer ? std::vector<int64_t>{16, 7} : std::vector<int64_t>{1, 16, 7}) {
          CAPTURE(describe(s, b, t));
          CAPTURE(page);
          Run run(s, t, in);
          Pool pool(s, t, page);
          pool.fill(b, run, 2);
          pool.result.resize(r.o.value.size());
          pool.attend(b, run, std::vector<int32_t>(s.lengths.size(), 0), s.lengths, 2);
          CHECK(worst(r.o, pool.result).ratio <= 1);
          run.forward(b, 1);
          const std::vector<double> dense = run.o.get(0, run.q_width());
          size_t apart = 0;
          for (size_t i = 0; i < dense.size(); ++i) apart += std::fabs(dense[i] - pool.result[i]) > 2 * r.o.bound[i];
          CHECK(apart == 0);
        }
      }
    }
  }
}

TEST_CASE("paged attention: a query's bits do not depend on chunks, batch mates or threads") {
  const Shape s{6, 2, 64, {150, 0, 37, 97}};
  for (DType t : kTypes) {
    const Inputs in = random_inputs(s, t);
    for (const Backend& b : backends(t)) {
      CAPTURE(describe(s, b, t));
      Run run(s, t, in);
      Pool pool(s, t, 16);
      pool.fixed_order = true;
      pool.fill(b, run, 1);
      const std::vector<double> empty(static_cast<size_t>(s.tokens() * run.q_width()));
      pool.result = empty;
      pool.attend(b, run, {0, 0, 0, 0}, s.lengths, 1);
      const std::vector<double> once = pool.result;
      REQUIRE(*std::max_element(once.begin(), once.end()) > *std::min_element(once.begin(), once.end()));

      for (int32_t chunk : {1, 17, 64}) {
        for (int threads : teams({1, 2, 3})) {
          pool.result = empty;
          for (int32_t from = 0; from < 150; from += chunk) {  // all sequences advance side by side until they end
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
      pool.result = once;
      std::fill(pool.result.begin() + 150 * run.q_width(), pool.result.begin() + 187 * run.q_width(), 0.0);
      pool.attend(b, run, {0, 0, 0, 0}, {0, 0, 37, 0}, 2);  // alone
      CHECK(pool.result == once);
    }
  }
}

TEST_CASE("kv_write: rows land in their slots, negative slots are skipped, nothing else is touched") {
  const Shape s{2, 2, 5, {6}};
  for (DType t : kTypes) {
    const Inputs in = random_inputs(s, t);
    for (const Backend& b : backends(t)) {
      CAPTURE(describe(s, b, t));
      Run run(s, t, in);
      Pool pool(s, t, 4);
      const std::vector<int64_t> order{3, -1, 0, 7, -1, 2};
      pool.slots = order;
      pool.fill(b, run, 2);
      const std::vector<double> got_k = pool.k.get(0, 10), got_v = pool.v.get(0, 10);
      for (int64_t slot = 0; slot < 8; ++slot) {
        const auto at = std::find(order.begin(), order.end(), slot);
        for (int64_t c = 0; c < 10; ++c) {
          const auto i = static_cast<size_t>(slot * 10 + c);
          const auto from = static_cast<size_t>((at - order.begin()) * 10 + c);
          CHECK((at == order.end() ? std::isnan(got_k[i]) : got_k[i] == in.k[from]));
          CHECK((at == order.end() ? std::isnan(got_v[i]) : got_v[i] == in.v[from]));
        }
      }
      CHECK(pool.k.intact_outside(0, 10));
      CHECK(pool.v.intact_outside(0, 10));
    }
  }
}
