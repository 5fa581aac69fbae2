#include "libcore/spec/box.h"

#include <fmt/core.h>

#include <algorithm>

#include "libcore/base/check.h"

namespace rw {

namespace {

// Elements from the start of the row-major buffer that holds exactly `buffer` to the element at `at` (a global index).
int64_t offset_in(const Box& buffer, const Shape& at) {
  int64_t offset = 0;
  for (size_t i = 0; i < at.size(); ++i) offset = offset * buffer.extent[i] + (at[i] - buffer.offset[i]);
  return offset;
}

bool inside(const Box& outer, const Box& inner) {
  if (inner.extent.size() != outer.extent.size()) return false;
  for (size_t i = 0; i < inner.extent.size(); ++i) {
    if (inner.offset[i] < outer.offset[i]) return false;
    if (inner.offset[i] + inner.extent[i] > outer.offset[i] + outer.extent[i]) return false;
  }
  return true;
}

}  // namespace

int64_t n_elements(const Shape& shape) {
  int64_t n = 1;
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  for (int64_t e : shape) {
    CHECK(e > 0, "negative extent in %s", shape_text(shape).c_str());
    CHECK(!__builtin_mul_overflow(n, e, &n), "more elements than int64 in %s", shape_text(shape).c_str());
  }
  return n;
}

std::string shape_text(const Shape& shape) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i) text += fmt::format("{}{}", i == 0 ? "" : ", ", shape[i]);
  return text + ")";
}

Box whole(const Shape& shape) { return {Shape(shape.size(), 0), shape}; }

Box intersect(const Box& a, const Box& b) {
  CHECK(a.extent.size() == b.extent.size(), "boxes of %zu and %zu dimensions", a.extent.size(), b.extent.size());
  Box both = whole(a.extent);
  for (size_t i = 0; i < a.extent.size(); ++i) {
    const int64_t end = std::min(a.offset[i] + a.extent[i], b.offset[i] + b.extent[i]);
    both.offset[i] = std::max(a.offset[i], b.offset[i]);
    both.extent[i] = std::max<int64_t>(0, end - both.offset[i]);
  }
  return both;
}

bool contains(const Shape& shape, const Box& box) {
  if (box.extent.size() != shape.size() || box.offset.size() != shape.size()) return false;
  for (size_t i = 0; i < shape.size(); ++i) {
    // Written so that a box from a hostile file cannot overflow the sum.
    if (box.offset[i] < 0 || box.extent[i] < 0 || box.offset[i] > shape[i]) return false;
    if (box.extent[i] > shape[i] - box.offset[i]) return false;
  }
  return true;
}

std::string box_text(const Box& box) {
  std::string text = "[";
  for (size_t i = 0; i < box.extent.size(); ++i)
    text += fmt::format("{}{}:{}", i == 0 ? "" : ", ", box.offset[i], box.offset[i] + box.extent[i]);
  return text + "]";
}

void for_each_run(const Box& part, const Box& src, const Box& dst,
                  const std::function<void(int64_t, int64_t, int64_t)>& copy) {
  if (part.size() == 0) return;
  CHECK(inside(src, part), "part %s outside src %s", box_text(part).c_str(), box_text(src).c_str());
  CHECK(inside(dst, part), "part %s outside dst %s", box_text(part).c_str(), box_text(dst).c_str());

  // The innermost dimension is contiguous in both buffers; the next one out joins it when the inner one is whole in
  // both.
  size_t outer = part.extent.size();  // dimensions [outer, rank) are one run
  int64_t run = 1;
  while (outer > 0) {
    --outer;
    run *= part.extent[outer];
    if (part.extent[outer] != src.extent[outer] || part.extent[outer] != dst.extent[outer]) break;
  }

  Shape at = part.offset;
  for (;;) {
    copy(offset_in(src, at), offset_in(dst, at), run);
    size_t i = outer;
    while (i > 0 && ++at[i - 1] == part.offset[i - 1] + part.extent[i - 1]) {
      at[i - 1] = part.offset[i - 1];
      --i;
    }
    if (i == 0) return;
  }
}

}  // namespace rw
