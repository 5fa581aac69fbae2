#include "tests/kernels/array.h"

namespace rw::test {
namespace {

std::vector<int32_t> ids(int64_t rows, int64_t v, int64_t step) {
  std::vector<int32_t> id;
  for (int64_t r = 0; r < rows; ++r) id.push_back(static_cast<int32_t>(r * step % v));
  return id;
}

TEST_CASE("embedding_fwd looks rows up, exactly rounded") {
  each_table_and_type([](const Ops& ops, DType t) {
    const int64_t v = 11, rows = 9;
    for (int64_t c : {1, 15, 16, 17, 100}) {
      for (bool with_pos : {false, true}) {
        Array table(DType::f32, v * c, 1), pos_table(DType::f32, 5 * c, 2), x(t, rows * c), want(t, rows * c);
        const std::vector<int32_t> id = ids(rows, v, 7), pos = ids(rows, 5, 3);
        ops.embedding_fwd({.x = x.data(),
                           .table = table.f32(),
                           .pos_table = with_pos ? pos_table.f32() : nullptr,
                           .id = id.data(),
                           .pos = pos.data(),
                           .rows = rows,
                           .c = c,
                           .t = t},
                          {});
        for (int64_t i = 0; i < rows * c; ++i) {
          const float token = static_cast<float>(table[id[i / c] * c + i % c]);
          want.set(i, with_pos ? token + static_cast<float>(pos_table[pos[i / c] * c + i % c]) : token);
        }
        CHECK(x.same_bits(want));
        CHECK(x.canaries_alive());
      }
    }
  });
}

TEST_CASE("embedding_fwd from a table of any type") {
  each_table_and_type([](const Ops& ops, DType t) {
    const int64_t v = 11, rows = 9, c = 37;
    const std::vector<int32_t> id = ids(rows, v, 7), pos = ids(rows, 5, 3);
    for (DType table_t : kActivations) {
      for (bool with_pos : {false, true}) {
        Array table(table_t, v * c, 1), pos_table(DType::f32, 5 * c, 2), x(t, rows * c), want(t, rows * c);
        ops.embedding_fwd({.x = x.data(),
                           .table = table.data(),
                           .pos_table = with_pos ? pos_table.f32() : nullptr,
                           .id = id.data(),
                           .pos = pos.data(),
                           .rows = rows,
                           .c = c,
                           .t = t,
                           .table_t = table_t},
                          {2});
        for (int64_t i = 0; i < rows * c; ++i) {
          const float token = static_cast<float>(table[id[i / c] * c + i % c]);
          want.set(i, with_pos ? token + static_cast<float>(pos_table[pos[i / c] * c + i % c]) : token);
        }
        CHECK(x.same_bits(want));
        CHECK(x.canaries_alive());
      }
    }
  });
}

// Ranges of the vocabulary, an empty one among them, and a position table that one of the ranks has.
TEST_CASE("embeddings of a range of the vocabulary: other ids are zeros and leave no gradient") {
  each_table_and_type([](const Ops& ops, DType t) {
    const int64_t v = 13, rows = 29, c = 19;
    const std::vector<int32_t> id = ids(rows, v, 5), pos = ids(rows, 4, 3);
    Array table(DType::f32, v * c, 1), pos_table(DType::f32, 4 * c, 2), d_x(t, rows * c, 3);
    for (auto [begin, end] : {std::pair<int64_t, int64_t>{0, 4}, {4, 4}, {4, 9}, {9, 13}, {0, 13}}) {
      for (bool with_pos : {false, true}) {
        CAPTURE(begin);
        CAPTURE(with_pos);
        const auto held = [&, b = begin, e = end](int64_t r) { return id[r] >= b && id[r] < e; };
        Array x(t, rows * c), want(t, rows * c);
        ops.embedding_fwd({.x = x.data(),
                           .table = table.f32() + begin * c,
                           .pos_table = with_pos ? pos_table.f32() : nullptr,
                           .id = id.data(),
                           .pos = pos.data(),
                           .rows = rows,
                           .c = c,
                           .id_begin = begin,
                           .id_end = end,
                           .t = t},
                          {2});
        Array d(DType::f32, v * c, 4), d_want = copy_of(d), d_pos(DType::f32, 4 * c, 5), pos_want = copy_of(d_pos);
        ops.embedding_bwd({.d_table = d.f32() + begin * c,
                           .d_pos_table = with_pos ? d_pos.f32() : nullptr,
                           .d_x = d_x.data(),
                           .id = id.data(),
                           .pos = pos.data(),
                           .rows = rows,
                           .c = c,
                           .id_begin = begin,
                           .id_end = end,
                           .t = t},
                          {2});
        for (int64_t i = 0; i < rows * c; ++i) {
          const int64_t r = i / c;
          const float token = held(r) ? static_cast<float>(table[id[r] * c + i % c]) : 0.0f;
          want.set(i, with_pos ? token + static_cast<float>(pos_table[pos[r] * c + i % c]) : token);
          if (held(r)) d_want.f32()[id[r] * c + i % c] += static_cast<float>(d_x[i]);
          if (with_pos) pos_want.f32()[pos[r] * c + i % c] += static_cast<float>(d_x[i]);
        }
        CHECK(x.same_bits(want));
        CHECK(d.same_bits(d_want));
        CHECK(d_pos.same_bits(pos_want));
      }
    }
    Array d_pos(DType::f32, 4 * c, 5), pos_want = copy_of(d_pos);  // without a table: positions alone
    for (int64_t i = 0; i < rows * c; ++i) pos_want.f32()[pos[i / c] * c + i % c] += static_cast<float>(d_x[i]);
    ops.embedding_bwd({.d_table = nullptr,
                       .d_pos_table = d_pos.f32(),
                       .d_x = d_x.data(),
                       .id = id.data(),
                       .pos = pos.data(),
                       .rows = rows,
                       .c = c,
                       .t = t},
                      {});
    CHECK(d_pos.same_bits(pos_want));
  });
}

TEST_CASE("embedding_bwd adds in row order, whatever the number of threads") {
  each_table_and_type([](const Ops& ops, DType t) {
    const int64_t v = 13;
    for (auto [rows, c] : {std::pair<int64_t, int64_t>{0, 5}, {7, 1}, {31, 17}, {300, 333}}) {
      Array d_x(t, rows * c, 1);
      const std::vector<int32_t> id = ids(rows, v, 5), pos = ids(rows, 4, 3);
      Array want(DType::f32, v * c, 2), want_pos(DType::f32, 4 * c, 3);
      for (int64_t i = 0; i < rows * c; ++i) {  // one f32 addition a row: the order is part of the contract
        const float d = static_cast<float>(d_x[i]);
        want.f32()[id[i / c] * c + i % c] += d;
        want_pos.f32()[pos[i / c] * c + i % c] += d;
      }
      for (int threads : {1, 2, 3}) {
        Array d_table(DType::f32, v * c, 2), d_pos(DType::f32, 4 * c, 3);
        ops.embedding_bwd({.d_table = d_table.f32(),
                           .d_pos_table = d_pos.f32(),
                           .d_x = d_x.data(),
                           .id = id.data(),
                           .pos = pos.data(),
                           .rows = rows,
                           .c = c,
                           .t = t},
                          {threads});
        CHECK(d_table.same_bits(want));
        CHECK(d_pos.same_bits(want_pos));
        CHECK(d_table.canaries_alive());
      }
    }
  });
}

}  // namespace
}  // namespace rw::test
