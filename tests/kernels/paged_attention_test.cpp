#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "tests/kernels/attention_backends.h"

using namespace rw;
using namespace rw::test;

namespace {

// A pool of pages that holds sequences of a shape, each page in a scattered place, filled through kv_write.
struct Pool {
  Shape shape;
  DType t;
  int64_t page_tokens, max_pages;
  std::vector<int32_t> table;
  std::vector<int64_t> slots;
  Rows k, v;

  static int64_t longest(const Shape& s) {
    return s.lengths.empty() ? 0 : *std::max_element(s.lengths.begin(), s.lengths.end());
  }
  static int64_t pages_each(const Shape& s, int64_t page) { return longest(s) / page + 1; }
  static int64_t pool_rows(const Shape& s, int64_t page) {
    return static_cast<int64_t>(s.lengths.size()) * pages_each(s, page) * page;
  }

  Pool(const Shape& s, DType type, int64_t page)
      : shape(s),
        t(type),
        page_tokens(page),
        max_pages(pages_each(s, page)),
        k(type, pool_rows(s, page), s.kv_heads * s.d),
        v(type, pool_rows(s, page), s.kv_heads * s.d) {
    const int64_t n = static_cast<int64_t>(s.lengths.size()) * max_pages;
    for (int64_t i = 0; i < n; ++i) table.push_back(static_cast<int32_t>(n - 1 - i));
    for (size_t seq = 0; seq < s.lengths.size(); ++seq) {
      for (int64_t i = 0; i < s.lengths[seq]; ++i)
        slots.push_back(table[static_cast<size_t>(static_cast<int64_t>(seq) * max_pages + i / page)] * page + i % page);
    }
  }
  void fill(const Backend& b, Run& run, int threads) {
    b.kv_write({.k_pages = k.data(),
                .v_pages = v.data(),
                .k = run.qkv.data(run.k_column()),
                .v = run.qkv.data(run.v_column()),
                .slot = slots.data(),
                .rows = static_cast<int64_t>(slots.size()),
                .kv_heads = shape.kv_heads,
                .d = shape.d,
                .ld = run.qkv.stride(),
                .t = t},
               Stream{threads});
  }
  // The queries first[s] .. first[s] + n[s] of each sequence, read from run.qkv and written to run.o where the dense
  // attention would write them (the batch in between is packed).
  void attend(const Backend& b, Run& run, const std::vector<int32_t>& first, const std::vector<int32_t>& n,
              int threads) {
    const int64_t width = run.q_width();
    const std::vector<double> all = run.qkv.get(0, run.q_width());
    std::vector<double> picked;
    std::vector<int32_t> start{0}, context;
    for (size_t s = 0; s < n.size(); ++s) {
      const int64_t row = run.cu[s] + first[s];
      picked.insert(picked.end(), all.begin() + row * width, all.begin() + (row + n[s]) * width);
      start.push_back(start.back() + n[s]);
      context.push_back(first[s] + n[s]);
    }
    Rows q(t, start.back(), run.q_width() + 7), o(t, start.back(), run.q_width() + 1);
    q.put(0, run.q_width(), picked);
    b.paged({.o = o.data(),
             .q = q.data(),
             .k_pages = k.data(),
             .v_pages = v.data(),
             .page_table = table.data(),
             .q_start = start.data(),
             .context_len = context.data(),
             .n_seq = static_cast<int64_t>(n.size()),
             .max_pages = max_pages,
             .page_tokens = page_tokens,
             .heads = shape.heads,
             .kv_heads = shape.kv_heads,
             .d = shape.d,
             .ldo = o.stride(),
             .ldq = q.stride(),
             .scale = run.scale,
             .t = t},
            Stream{threads});
    CHECK(o.intact_outside(0, run.q_width()));
    const std::vector<double> got = o.get(0, run.q_width());
    for (size_t s = 0; s < n.size(); ++s)
      std::copy(got.begin() + start[s] * width, got.begin() + start[s + 1] * width,
                result.begin() + (run.cu[s] + first[s]) * width);
  }
  std::vector<double> result;
};

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all = {
      {1, 1, 64, {1}},        {2, 2, 64, {31, 33}}, {8, 2, 128, {64, 5}},  {7, 1, 80, {100}},
      {6, 3, 20, {0, 70, 9}}, {5, 5, 1, {3, 40}},   {3, 1, 33, {65}},      {12, 1, 64, {32}},
      {2, 1, 256, {97}},      {2, 2, 8, {0}},       {20, 1, 24, {34, 36}},
  };
  return all;
}

std::vector<Backend> paged_backends() { return backends(DType::f32); }  // paged attention has no second bf16 way

std::string describe(const Shape& s, const Backend& b, DType t) {
  return std::string(b.name) + " " + dtype_name(t) + " H" + std::to_string(s.heads) + "/" + std::to_string(s.kv_heads) +
         " D" + std::to_string(s.d) + " T" + std::to_string(s.tokens());
}

}  // namespace

TEST_CASE("paged attention: the definition in double precision, and within both bounds of dense attention") {
  for (DType t : kTypes) {
    for (const Shape& s : shapes()) {
      const Inputs in = random_inputs(s, t);
      const Reference r = reference(s, in, t, false, static_cast<double>(Run(s, t, in).scale));
      for (const Backend& b : paged_backends()) {
        for (int64_t page : {1, 16, 7}) {
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
    for (const Backend& b : paged_backends()) {
      CAPTURE(describe(s, b, t));
      Run run(s, t, in);
      Pool pool(s, t, 16);
      pool.fill(b, run, 1);
      const std::vector<double> empty(static_cast<size_t>(s.tokens() * run.q_width()));
      pool.result = empty;
      pool.attend(b, run, {0, 0, 0, 0}, s.lengths, 1);
      const std::vector<double> once = pool.result;
      REQUIRE(*std::max_element(once.begin(), once.end()) > *std::min_element(once.begin(), once.end()));

      for (int32_t chunk : {1, 17, 64}) {
        for (int threads : {1, 2, 3}) {
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
    for (const Backend& b : paged_backends()) {
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
