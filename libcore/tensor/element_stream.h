// Tensors of any size in parts that fit a small buffer, as f64.
#pragma once
#include <cstdint>
#include <functional>

#include "libcore/spec/box.h"
#include "libcore/tensor/source.h"

namespace rw {

constexpr int64_t kStreamElements = int64_t{1} << 18;  // of a part

// Cuts a tensor into boxes of at most max_elements that follow each other in row-major order: each is contiguous in the
// tensor. None for an empty tensor.
void for_each_part(const Shape& shape, int64_t max_elements, const std::function<void(const Box&)>& part);

// dst[i] = src[i]. Every dtype's values are exact in f64 but i64's beyond 2^53.
void to_f64(const void* src, DType type, double* dst, int64_t n);

}  // namespace rw
