#include "tests/kernels/array.h"
#include "tests/ref/kernels.h"

namespace rw::test {
namespace {

TEST_CASE("rope turns pairs; inverse turns back") {
  each_table_and_type([](const Ops& ops, DType t) {
    const int64_t max_pos = 9;
    for (int64_t d : {2, 4, 6, 30, 32, 34, 64, 128}) {
      for (auto [rows, heads, gap] : {std::array<int64_t, 3>{0, 2, 0}, {1, 1, 0}, {7, 3, 5}, {5, 40, 0}}) {
        CAPTURE(d);
        const int64_t half = d / 2, ld = heads * d + gap;
        Array x(t, rows * ld, 1), cos(DType::f32, max_pos * half), sin(DType::f32, max_pos * half);
        for (int64_t i = 0; i < max_pos * half; ++i) {
          const double angle = static_cast<double>(i / half) *
                               std::pow(100.0, -static_cast<double>(i % half) / static_cast<double>(half));
          cos.set(i, std::cos(angle)), sin.set(i, std::sin(angle));
        }
        std::vector<int32_t> pos;
        for (int64_t r = 0; r < rows; ++r) pos.push_back(static_cast<int32_t>(r * 5 % max_pos));
        for (Direction direction : {Direction::forward, Direction::inverse}) {
          Array y = copy_of(x), y3 = copy_of(x);
          Rope a{.x = y.data(),
                 .pos = pos.data(),
                 .cos = cos.f32(),
                 .sin = sin.f32(),
                 .rows = rows,
                 .heads = heads,
                 .d = d,
                 .ld = gap ? ld : 0,
                 .direction = direction,
                 .t = t};
          ops.rope(a, {});
          a.x = y3.data();
          ops.rope(a, {3});
          CHECK(y3.same_bits(y));
          for (int64_t r = 0; r < rows; ++r) {
            for (int64_t h = 0; h < heads; ++h) {
              const int64_t at = r * ld + h * d;
              ref::Vec head;
              for (int64_t i = 0; i < d; ++i) head.push_back(x[at + i]);
              const ref::Vec want = ref::rope(head, pos[r], 100, direction == Direction::inverse);
              for (int64_t i = 0; i < d; ++i) {
                const double mag = std::abs(head[i % half]) + std::abs(head[i % half + half]);
                check_near(y[at + i], want[i], 3 * kU * mag + rounding_error(t, want[i]), "x", at + i);
              }
            }
            for (int64_t i = heads * d; i < ld; ++i) CHECK(y[r * ld + i] == x[r * ld + i]);
          }
          CHECK(y.canaries_alive());
        }
      }
    }
  });
}

// The rotation is linear: its transpose, which the backward needs, is the inverse rotation.
TEST_CASE("rope's inverse is its gradient by finite differences") {
  Array x(DType::f32, 6, 1), d_y(DType::f32, 6, 2);
  const ref::Vec grad = ref::rope(d_y.values(), 5, 100, true);
  for (int64_t i = 0; i < 6; ++i) {
    const double fd = ref::slope(
        [&](const ref::Vec& v) {
          const ref::Vec y = ref::rope(v, 5, 100, false);
          double sum = 0;
          for (int64_t k = 0; k < 6; ++k) sum += y[k] * d_y[k];
          return sum;
        },
        x.values(), i);
    check_near(grad[i], fd, 1e-10, "d_x", i);
  }
}

}  // namespace
}  // namespace rw::test
