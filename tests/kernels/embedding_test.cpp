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
