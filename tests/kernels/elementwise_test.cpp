#include "tests/kernels/array.h"

namespace rw::test {
namespace {

const int64_t kSizes[] = {0, 1, 3, 4, 5, 15, 16, 17, 33, 1009, 50021};

TEST_CASE("add and scale round once") {
  each_table_and_type([](const Ops& ops, DType t) {
    for (int64_t n : kSizes) {
      for (int threads : {1, 3}) {
        Array a(t, n, 1), b(t, n, 2), y(t, n), sum(t, n), scaled(t, n), s = copy_of(a);
        for (int64_t i = 0; i < n; ++i) {
          sum.set(i, static_cast<float>(a[i]) + static_cast<float>(b[i]));
          scaled.set(i, static_cast<float>(a[i]) * 0.3f);
        }
        ops.add({.y = y.data(), .a = a.data(), .b = b.data(), .n = n, .t = t}, {threads});
        ops.scale({.y = s.data(), .s = 0.3f, .n = n, .t = t}, {threads});
        CHECK(y.same_bits(sum));
        CHECK(s.same_bits(scaled));
        ops.add({.y = a.data(), .a = a.data(), .b = b.data(), .n = n, .t = t}, {threads});
        CHECK(a.same_bits(sum));
        for (const Array* arr : {&a, &y, &s}) CHECK(arr->canaries_alive());
      }
    }
  });
}

TEST_CASE("bias_bwd sums columns, whatever the number of threads") {
  each_table_and_type([](const Ops& ops, DType t) {
    for (auto [rows, n, ld] :
         {std::array<int64_t, 3>{0, 5, 5}, {1, 1, 1}, {7, 17, 17}, {8, 64, 70}, {9, 130, 131}, {501, 333, 333}}) {
      for (Write write : {Write::overwrite, Write::accumulate}) {
        Array d_y(t, rows * ld, 1), was(DType::f32, n, 2), first(DType::f32, n);
        for (int threads : {1, 2, 3}) {
          Array d_bias = copy_of(was);
          ops.bias_bwd({.d_bias = d_bias.f32(),
                        .d_y = d_y.data(),
                        .rows = rows,
                        .n = n,
                        .ld = ld == n ? 0 : ld,
                        .t = t,
                        .write = write},
                       {threads});
          CHECK(d_bias.canaries_alive());
          if (threads > 1) {
            CHECK(d_bias.same_bits(first));
            continue;
          }
          for (int64_t i = 0; i < n; ++i) {
            double want = write == Write::accumulate ? was[i] : 0, mag = std::abs(want);
            for (int64_t r = 0; r < rows; ++r) want += d_y[r * ld + i], mag += std::abs(d_y[r * ld + i]);
            check_near(d_bias[i], want, (static_cast<double>(rows) / 8 + 15) * kU * mag, "d_bias", i);
          }
          first = std::move(d_bias);
        }
      }
    }
  });
}

}  // namespace
}  // namespace rw::test
