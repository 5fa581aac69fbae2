// Many queries of a sequence at once: sizes around the blocks of 64 queries and keys, chunks, batches that mix prefill
// and decoding, and every type that has a way of its own.
#include "tests/kernels/paged_pool.h"

using namespace rw;
using namespace rw::test;

namespace {

struct Case {
  Shape shape;  // lengths are whole contexts
  std::vector<int32_t> queries;
  int64_t page;
  Case(const Shape& s, const std::vector<int32_t>& q, int64_t page_tokens) : shape(s), queries(q), page(page_tokens) {}
};

// One query decodes, fewer than 16 are single ones, the rest go in blocks.
const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {{1, 1, 64, {16}}, {16}, 16},
      {{2, 1, 64, {64, 128, 65}}, {64, 64, 33}, 16},
      {{3, 3, 40, {200, 77, 191}}, {130, 16, 15}, 7},
      {{4, 2, 64, {193, 300, 64, 20}}, {1, 300, 17, 5}, 16},
      {{9, 1, 24, {150, 0, 131}}, {67, 0, 131}, 5},
      {{20, 2, 16, {96}}, {95}, 64},
      {{2, 2, 128, {129, 127}}, {32, 127}, 1},
      {{1, 1, 200, {143}}, {70}, 16},
      {{2, 1, 1100, {40}}, {37}, 3},
      {{2, 2, 1, {90}}, {80}, 11},
  };
  return all;
}

std::vector<int32_t> before(const Case& c) {
  std::vector<int32_t> first;
  for (size_t s = 0; s < c.queries.size(); ++s) first.push_back(c.shape.lengths[s] - c.queries[s]);
  return first;
}

struct Types {
  DType t, kv_t;
};
constexpr Types kTypePairs[] = {{DType::f32, DType::f32},  {DType::bf16, DType::bf16}, {DType::f16, DType::f16},
                                {DType::bf16, DType::i8},  {DType::f32, DType::i8},    {DType::f32, DType::bf16},
                                {DType::bf16, DType::f32}, {DType::f16, DType::i8}};

}  // namespace

TEST_CASE("paged prefill: the definition in double precision, for chunks and mixed batches") {
  for (const auto& [t, kv_t] : kTypePairs) {
    for (const Case& c : cases()) {
      const Inputs in = random_inputs(c.shape, t);
      for (const Backend& b : backends(t)) {
        CAPTURE(describe(c.shape, b, t));
        CAPTURE(std::string(dtype_name(kv_t)));
        Run run(c.shape, t, in);
        Pool pool(c.shape, t, c.page, kv_t);
        pool.fill(b, run, 1);
        const Reference r = reference(c.shape, pool.held_inputs(in), t, false, static_cast<double>(run.scale));
        pool.result = r.o.value;  // rows that are no queries stay
        pool.attend(b, run, before(c), c.queries, 2);
        CHECK(pool.result != r.o.value);
        CHECK(worst(r.o, pool.result).ratio <= 1);
      }
    }
  }
}

TEST_CASE("paged prefill: a sequence's bits do not depend on batch mates or threads") {
  for (const auto& [t, kv_t] : kTypePairs) {
    const Case whole{{6, 2, 32, {310, 100, 64, 9, 257}}, {280, 16, 64, 1, 255}, 16};
    const Case c = kFewer ? Case{{6, 2, 32, {93, 100, 64, 9, 70}}, {80, 16, 64, 1, 68}, 16} : whole;
    const Inputs in = random_inputs(c.shape, t);
    for (const Backend& b : backends(t)) {
      CAPTURE(describe(c.shape, b, t));
      CAPTURE(std::string(dtype_name(kv_t)));
      Run run(c.shape, t, in);
      Pool pool(c.shape, t, c.page, kv_t);
      pool.fill(b, run, 1);
      const std::vector<double> empty(static_cast<size_t>(c.shape.tokens() * run.q_width()));
      pool.result = empty;
      pool.attend(b, run, before(c), c.queries, 1);
      const std::vector<double> once = pool.result;
      for (int threads : teams({2, 3, 5})) {
        pool.result = empty;
        pool.attend(b, run, before(c), c.queries, threads);
        CHECK(pool.result == once);
      }
      pool.result = empty;
      for (size_t s = 0; s < c.queries.size(); ++s) {
        std::vector<int32_t> alone(c.queries.size());
        alone[s] = c.queries[s];
        pool.attend(b, run, before(c), alone, 2);
      }
      CHECK(pool.result == once);
    }
  }
}

TEST_CASE("paged prefill: without a workspace, and in a fixed order, every query is the one that decodes") {
  const Case c{{4, 2, 48, {170}}, {100}, 16};
  for (DType t : kTypes) {
    const Inputs in = random_inputs(c.shape, t);
    for (const Backend& b : backends(t)) {
      CAPTURE(describe(c.shape, b, t));
      Run run(c.shape, t, in);
      Pool pool(c.shape, t, c.page);
      pool.fill(b, run, 1);
      const std::vector<double> empty(static_cast<size_t>(c.shape.tokens() * run.q_width()));
      pool.result = empty;
      for (int32_t i = 70; i < 170; ++i) pool.attend(b, run, {i}, {1}, 1);
      const std::vector<double> one_by_one = pool.result;
      pool.result = empty;
      pool.fixed_order = true;
      pool.attend(b, run, before(c), c.queries, 2);
      CHECK(pool.result == one_by_one);
      pool.result = empty;
      pool.fixed_order = false;
      pool.lends_workspace = false;
      pool.attend(b, run, before(c), c.queries, 2);
      CHECK(pool.result == one_by_one);
    }
  }
}

// Fewer queries than a block of rows has, so that each is gone through alone, beside what decodes and what goes in
// blocks; in contexts of several chunks.
TEST_CASE("paged prefill: a few queries behind long contexts, by the definition, bit-equal alone and one by one") {
  const Case few[] = {{{2, 1, 64, {262, 515, 1, 290, 258}}, {2, 7, 1, 16, 15}, 16},
                      {{20, 1, 24, {258, 0, 280}}, {2, 0, 5}, 7}};
  const Types types[] = {{DType::f32, DType::f32}, {DType::bf16, DType::bf16}, {DType::f16, DType::i8}};
  for (const auto& [t, kv_t] : types) {
    for (const Case& c : few) {
      const Inputs in = random_inputs(c.shape, t);
      for (const Backend& b : backends(t)) {
        CAPTURE(describe(c.shape, b, t));
        Run run(c.shape, t, in);
        Pool pool(c.shape, t, c.page, kv_t);
        pool.fill(b, run, 1);
        const Reference r = reference(c.shape, pool.held_inputs(in), t, false, static_cast<double>(run.scale));
        const std::vector<double> empty(r.o.value.size());
        for (bool fixed : {false, true}) {
          CAPTURE(fixed);
          pool.fixed_order = fixed;
          pool.result = r.o.value;
          pool.attend(b, run, before(c), c.queries, 2);
          CHECK(pool.result != r.o.value);
          CHECK(worst(r.o, pool.result).ratio <= 1);
          pool.result = empty;
          pool.attend(b, run, before(c), c.queries, 1);
          const std::vector<double> once = pool.result;
          pool.result = empty;
          if (fixed) {  // the i-th query of all
            for (int32_t i = 0; i < 16; ++i) {
              std::vector<int32_t> first = before(c), one;
              for (size_t s = 0; s < c.queries.size(); ++s) {
                one.push_back(i < c.queries[s] ? 1 : 0);
                first[s] += i;
              }
              pool.attend(b, run, first, one, 2);
            }
          } else {
            for (size_t s = 0; s < c.queries.size(); ++s) {
              std::vector<int32_t> alone(c.queries.size());
              alone[s] = c.queries[s];
              pool.attend(b, run, before(c), alone, 2);
            }
          }
          CHECK(pool.result == once);
        }
      }
    }
  }
}
