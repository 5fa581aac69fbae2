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

// Loss scaling finds an overflow by the infinity it leaves.
TEST_CASE("f16: sums, products and conversions beyond 65504 are infinite, those below 2^-24 are rounded to its steps") {
  each_table_and_type([](const Ops& ops, DType t) {
    if (t != DType::f16) return;
    const double in[] = {60000, -60000, 32768, 3e-6, 0x1p-24, -0x1p-14},
                 twice[] = {INFINITY, -INFINITY, INFINITY, 6e-6, 0x1p-23, -0x1p-13};
    const int64_t n = 6;
    Array a(DType::f16, n), y(DType::f16, n), half(DType::f16, n), want(DType::f16, n), want_half(DType::f16, n);
    for (int64_t i = 0; i < n; ++i) {
      a.set(i, in[i]), half.set(i, in[i]), want.set(i, 2 * a[i]), want_half.set(i, a[i] / 2);
      CHECK(std::isinf(want[i]) == std::isinf(twice[i]));
    }
    ops.add({.y = y.data(), .a = a.data(), .b = a.data(), .n = n, .t = DType::f16}, {});
    ops.scale({.y = half.data(), .s = 0.5f, .n = n, .t = DType::f16}, {});
    ops.scale({.y = a.data(), .s = 2, .n = n, .t = DType::f16}, {});
    CHECK(y.same_bits(want));
    CHECK(a.same_bits(want));
    CHECK(half.same_bits(want_half));
    CHECK(half[4] == 0);  // a tie between 0 and 2^-24 goes to even
  });
}

TEST_CASE("zero clears its bytes, read copies") {
  each_table_and_type([](const Ops& ops, DType t) {
    for (int64_t n : {0, 1, 3, 17, 70001}) {
      for (int threads : {1, 3}) {
        Array y(t, n, 1);
        ops.zero({.y = y.data(), .bytes = n * dtype_bytes(t)}, {threads});
        for (int64_t i = 0; i < n; ++i) REQUIRE(y[i] == 0);
        CHECK(y.canaries_alive());
      }
    }
    const std::vector<double> x{1.5, -2.5, 3.5};
    const std::vector<int64_t> k{INT64_MAX, -7};
    double x_host[3] = {};
    int64_t k_host[3] = {0, 0, 99};
    Array f(DType::f32, 5, 1), f_host(DType::f32, 5);
    ops.read({.host = x_host, .device = x.data(), .n = 3, .t = DType::f64}, {});
    ops.read({.host = k_host, .device = k.data(), .n = 2, .t = DType::i64}, {});
    ops.read({.host = f_host.data(), .device = f.data(), .n = 5, .t = DType::f32}, {});
    ops.read({.host = nullptr, .device = nullptr, .n = 0, .t = DType::f32}, {});
    CHECK((x_host[0] == 1.5 && x_host[1] == -2.5 && x_host[2] == 3.5));
    CHECK((k_host[0] == INT64_MAX && k_host[1] == -7 && k_host[2] == 99));
    CHECK((f_host.same_bits(f) && f_host.canaries_alive()));
  });
}

TEST_CASE("upload copies its bytes; where host and device are one address it does nothing") {
  each_table_and_type([](const Ops& ops, DType t) {
    for (int64_t n : {0, 1, 3, 17, 70001}) {
      Array host(t, n, 3), device(t, n), was = copy_of(host);
      ops.upload({.device = device.data(), .host = host.data(), .bytes = n * dtype_bytes(t)}, {});
      CHECK(device.same_bits(was));
      CHECK(device.canaries_alive());
      ops.upload({.device = host.data(), .host = host.data(), .bytes = n * dtype_bytes(t)}, {});
      CHECK(host.same_bits(was));
    }
    // Half of it, and nothing of it.
    Array host(t, 10, 4), device(t, 10), want(t, 10);
    std::memcpy(device.data(), want.data(), static_cast<size_t>(10 * dtype_bytes(t)));
    for (int64_t i = 0; i < 5; ++i) want.set(i, host[i]);
    ops.upload({.device = device.data(), .host = host.data(), .bytes = 5 * dtype_bytes(t)}, {});
    CHECK(device.same_bits(want));
    ops.upload({.device = device.data(), .host = host.data(), .bytes = 0}, {});
    ops.upload({.device = nullptr, .host = nullptr, .bytes = 0}, {});
    CHECK(device.same_bits(want));
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
