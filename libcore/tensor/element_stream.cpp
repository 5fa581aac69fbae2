#include "libcore/tensor/element_stream.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "libcore/base/check.h"
#include "libcore/tensor/elements.h"

namespace rw {

namespace {

template <typename T>
void widen(const void* src, double* dst, int64_t n) {
  const char* in = static_cast<const char*>(src);
  for (int64_t i = 0; i < n; ++i) {
    T x;
    std::memcpy(&x, in + i * static_cast<int64_t>(sizeof x), sizeof x);
    dst[i] = static_cast<double>(x);
  }
}

void cut(const Shape& shape, size_t dim, Box& box, int64_t max_elements, const std::function<void(const Box&)>& part) {
  int64_t below = 1;  // elements of one index of this dimension
  for (size_t d = dim + 1; d < shape.size(); ++d) below *= shape[d];
  const int64_t step = std::max<int64_t>(1, max_elements / below);
  for (int64_t at = 0; at < shape[dim]; at += step) {
    box.offset[dim] = at;
    box.extent[dim] = std::min(step, shape[dim] - at);
    if (below > max_elements) cut(shape, dim + 1, box, max_elements, part);
    else part(box);
  }
  box.offset[dim] = 0;
  box.extent[dim] = shape[dim];
}

}  // namespace

void for_each_part(const Shape& shape, int64_t max_elements, const std::function<void(const Box&)>& part) {
  CHECK(max_elements > 0, "parts of %lld elements", static_cast<long long>(max_elements));
  Box box = whole(shape);
  if (box.size() == 0) return;
  if (shape.empty()) return part(box);
  cut(shape, 0, box, max_elements, part);
}

void to_f64(const void* src, DType type, double* dst, int64_t n) {
  switch (type) {
    case DType::f64: return widen<double>(src, dst, n);
    case DType::f32: return widen<float>(src, dst, n);
    case DType::i64: return widen<int64_t>(src, dst, n);
    case DType::i32: return widen<int32_t>(src, dst, n);
    case DType::u16: return widen<uint16_t>(src, dst, n);
    case DType::u8: return widen<uint8_t>(src, dst, n);
    case DType::i8: return widen<int8_t>(src, dst, n);
    case DType::bf16:
    case DType::f16: break;
  }
  constexpr int64_t kPart = 1024;
  float part[kPart];
  for (int64_t done = 0; done < n; done += kPart) {
    const int64_t m = std::min(kPart, n - done);
    convert_elements(static_cast<const char*>(src) + done * 2, type, part, DType::f32, m);
    std::copy(part, part + m, dst + done);
  }
}

}  // namespace rw
