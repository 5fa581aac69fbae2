#include "libcore/spec/box.h"

#include <doctest/doctest.h>

#include <map>
#include <random>

#include "libcore/base/error.h"

namespace rw {
namespace {

// Every index of a box, in row-major order.
std::vector<Shape> indices(const Box& box) {
  std::vector<Shape> all = {{}};
  for (size_t i = 0; i < box.extent.size(); ++i) {
    std::vector<Shape> next;
    for (const Shape& head : all)
      for (int64_t k = 0; k < box.extent[i]; ++k) {
        next.push_back(head);
        next.back().push_back(box.offset[i] + k);
      }
    all = next;
  }
  return all;
}

// Where each global index lies in the buffer of a box.
std::map<Shape, int64_t> positions(const Box& box) {
  std::map<Shape, int64_t> at;
  for (const Shape& index : indices(box)) at.emplace(index, static_cast<int64_t>(at.size()));
  return at;
}

// Often whole in a dimension, sometimes empty.
Box random_box(std::mt19937& random, const Shape& shape) {
  const auto up_to = [&](int64_t n) { return std::uniform_int_distribution<int64_t>(0, n)(random); };
  Box box = whole(shape);
  for (size_t i = 0; i < shape.size(); ++i) {
    if (up_to(2) == 0) continue;
    box.offset[i] = up_to(shape[i] / 2);
    box.extent[i] = shape[i] - box.offset[i];
    box.extent[i] -= up_to(up_to(7) == 0 ? box.extent[i] : box.extent[i] / 2);
  }
  return box;
}

const std::vector<Shape> kShapes = {{}, {0}, {1}, {7}, {3, 5}, {1, 9}, {9, 1}, {2, 0, 3}, {4, 5, 7}, {2, 3, 1, 5}};

TEST_CASE("intersect holds exactly the indices that both boxes hold") {
  std::mt19937 random(1);
  int64_t met = 0;
  for (const Shape& shape : kShapes)
    for (int trial = 0; trial < 60; ++trial) {
      const Box a = random_box(random, shape), b = random_box(random, shape);
      const std::map<Shape, int64_t> in_b = positions(b);
      std::vector<Shape> both;
      for (const Shape& index : indices(a))
        if (in_b.count(index) != 0) both.push_back(index);
      CHECK(indices(intersect(a, b)) == both);
      CHECK(contains(shape, intersect(a, b)));
      CHECK(intersect(a, b) == intersect(b, a));
      CHECK(intersect(a, a) == a);
      CHECK(intersect(a, whole(shape)) == a);
      met += static_cast<int64_t>(both.size());
    }
  CHECK(met > 1000);
}

TEST_CASE("for_each_run visits each element once, at the right places, in runs that cannot be longer") {
  std::mt19937 random(2);
  int64_t runs_seen = 0;
  for (const Shape& shape : kShapes)
    for (int trial = 0; trial < 100; ++trial) {
      const Box src = random_box(random, shape);
      Box dst = random_box(random, shape);
      if (trial % 3 == 0) dst = src;
      const Box part = trial % 5 == 0 ? intersect(src, dst) : intersect(intersect(src, dst), random_box(random, shape));
      const std::map<Shape, int64_t> in_src = positions(src), in_dst = positions(dst);
      std::vector<std::pair<int64_t, int64_t>> expected, found;
      for (const Shape& index : indices(part)) expected.emplace_back(in_src.at(index), in_dst.at(index));
      std::vector<int64_t> lengths;
      for_each_run(part, src, dst, [&](int64_t from, int64_t to, int64_t n) {
        for (int64_t i = 0; i < n; ++i) found.emplace_back(from + i, to + i);
        lengths.push_back(n);
      });
      CHECK(found == expected);
      // Rows joined only where the inner dimension is whole in both: the count is known from the extents.
      int64_t run = 1;
      for (size_t i = shape.size(); i > 0; --i) {
        run *= part.extent[i - 1];
        if (part.extent[i - 1] != src.extent[i - 1] || part.extent[i - 1] != dst.extent[i - 1]) break;
      }
      for (int64_t n : lengths) CHECK(n == run);
      CHECK(lengths.size() == (part.size() == 0 ? 0 : static_cast<size_t>(part.size() / run)));
      runs_seen += static_cast<int64_t>(lengths.size());
    }
  CHECK(runs_seen > 1000);
}

TEST_CASE("a whole tensor is one run; a scalar is a run of one") {
  int64_t calls = 0;
  const Box all = whole({3, 4, 5});
  for_each_run(all, all, all, [&](int64_t from, int64_t to, int64_t n) {
    ++calls;
    CHECK(from == 0);
    CHECK(to == 0);
    CHECK(n == 60);
  });
  for_each_run(whole({}), whole({}), whole({}), [&](int64_t, int64_t, int64_t n) {
    ++calls;
    CHECK(n == 1);
  });
  CHECK(calls == 2);
}

TEST_CASE("for_each_run refuses a part outside its buffers; an empty part anywhere is nothing") {
  const auto ignore = [](int64_t, int64_t, int64_t) { FAIL("no run expected"); };
  CHECK_THROWS_AS(for_each_run({{2}, {3}}, {{0}, {4}}, {{0}, {9}}, ignore), CheckFailed);
  CHECK_THROWS_AS(for_each_run({{2}, {3}}, {{0}, {9}}, {{3}, {4}}, ignore), CheckFailed);
  CHECK_THROWS_AS(for_each_run({{2}, {3}}, whole({9, 9}), whole({9}), ignore), CheckFailed);
  CHECK_THROWS_AS(intersect(whole({2}), whole({2, 2})), CheckFailed);
  for_each_run({{100}, {0}}, whole({3}), whole({4}), ignore);
}

TEST_CASE("contains is safe for any numbers") {
  CHECK(contains({4, 5}, {{0, 0}, {4, 5}}));
  CHECK(contains({4, 5}, {{4, 5}, {0, 0}}));
  CHECK_FALSE(contains({4, 5}, {{0, 1}, {4, 5}}));
  CHECK_FALSE(contains({4, 5}, {{-1, 0}, {4, 5}}));
  CHECK_FALSE(contains({4, 5}, {{0, 0}, {4, -1}}));
  CHECK_FALSE(contains({4, 5}, {{0}, {4}}));
  CHECK_FALSE(contains({4, 5}, {{0, 0}, {4}}));
  CHECK_FALSE(contains({4, 5}, {{INT64_MAX, 1}, {INT64_MAX, 1}}));
  CHECK_FALSE(contains({4, 5}, {{1, 1}, {INT64_MAX, 1}}));
}

TEST_CASE("sizes and texts") {
  CHECK(n_elements({}) == 1);
  CHECK(n_elements({3, 0, 5}) == 0);
  CHECK(n_elements({int64_t{1} << 40, int64_t{1} << 40, 0}) == 0);
  CHECK(n_elements({3, 7}) == 21);
  CHECK_THROWS_AS(n_elements({int64_t{1} << 40, int64_t{1} << 40}), CheckFailed);
  CHECK_THROWS_AS(n_elements({3, -1}), CheckFailed);
  CHECK(shape_text({768, 2304}) == "(768, 2304)");
  CHECK(shape_text({}) == "()");
  CHECK(box_text({{0, 1536}, {768, 768}}) == "[0:768, 1536:2304]");
  CHECK(box_text({}) == "[]");
}

}  // namespace
}  // namespace rw
