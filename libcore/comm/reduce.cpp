#include "libcore/comm/reduce.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/bf16.h"
#include "kernels/cpu/f16.h"
#include "libcore/base/check.h"

namespace rw {
namespace {

struct Sum {
  template <typename T>
  static T apply(T a, T b) {
    if constexpr (std::is_integral_v<T>) return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    else return a + b;
  }
};
// A NaN wins on either side: a reduced maximum is how ranks tell each other of non-finite values.
struct Max {
  template <typename T>
  static T apply(T a, T b) {
    return b > a || b != b ? b : a;
  }
};
struct Min {
  template <typename T>
  static T apply(T a, T b) {
    return b < a || b != b ? b : a;
  }
};

template <typename T, typename Op>
void reduce_typed(const RankOrderReduce& r) {
  constexpr int64_t kBlock = 512;  // elements: the block stays in L1 from the first source to the last target
  T block[kBlock];
  for (int64_t begin = 0; begin < r.n; begin += kBlock) {
    const int64_t n = std::min(kBlock, r.n - begin);
    const T* first = static_cast<const T*>(r.sources[0]) + begin;
    size_t next = 1;
    if (r.sources.size() > 1) {
      const T* second = static_cast<const T*>(r.sources[1]) + begin;
      for (int64_t i = 0; i < n; ++i) block[i] = Op::apply(first[i], second[i]);
      next = 2;
    } else {
      std::memcpy(block, first, static_cast<size_t>(n) * sizeof(T));
    }
    for (; next < r.sources.size(); ++next) {
      const T* source = static_cast<const T*>(r.sources[next]) + begin;
      for (int64_t i = 0; i < n; ++i) block[i] = Op::apply(block[i], source[i]);
    }
    for (void* target : r.targets)
      std::memcpy(static_cast<T*>(target) + begin, block, static_cast<size_t>(n) * sizeof(T));
  }
}

template <typename T>
void reduce_op(const RankOrderReduce& r) {
  switch (r.op) {
    case ReduceOp::sum: return reduce_typed<T, Sum>(r);
    case ReduceOp::max: return reduce_typed<T, Max>(r);
    case ReduceOp::min: return reduce_typed<T, Min>(r);
  }
}

bf16 rounded(float x, bf16) { return to_bf16(x); }
f16 rounded(float x, f16) { return to_f16(x); }

// Sums of 16-bit types: added in f32, rounded once.
template <typename T>
void sum_16bit(const RankOrderReduce& r) {
  constexpr int64_t kBlock = 512;
  float sum[kBlock];
  T block[kBlock];
  for (int64_t begin = 0; begin < r.n; begin += kBlock) {
    const int64_t n = std::min(kBlock, r.n - begin);
    const T* first = static_cast<const T*>(r.sources[0]) + begin;
    for (int64_t i = 0; i < n; ++i) sum[i] = to_f32(first[i]);
    for (const void* source : r.sources.subspan(1)) {
      const T* x = static_cast<const T*>(source) + begin;
      for (int64_t i = 0; i < n; ++i) sum[i] += to_f32(x[i]);
    }
    for (int64_t i = 0; i < n; ++i) block[i] = rounded(sum[i], T{});
    for (void* target : r.targets)
      std::memcpy(static_cast<T*>(target) + begin, block, static_cast<size_t>(n) * sizeof(T));
  }
}

template <typename T>
void widen_typed(float* wide, const void* data, int64_t n) {
  for (int64_t i = 0; i < n; ++i) wide[i] = to_f32(static_cast<const T*>(data)[i]);
}
template <typename T>
void narrow_typed(void* data, const float* wide, int64_t n) {
  for (int64_t i = 0; i < n; ++i) static_cast<T*>(data)[i] = rounded(wide[i], T{});
}

}  // namespace

bool reducible(DType t, ReduceOp op) {
  return t == DType::f32 || t == DType::f64 || t == DType::i64 || (is_16bit(t) && op == ReduceOp::sum);
}

void check_reducible(const char* what, DType t, ReduceOp op) {
  CHECK(reducible(t, op), "%s of %s: reductions take f32, f64, i64, and sums bf16 and f16", what, dtype_name(t));
}

bool is_16bit(DType t) { return t == DType::bf16 || t == DType::f16; }

void widen(float* wide, const void* data, int64_t n, DType t) {
  CHECK(is_16bit(t), "widen %s", dtype_name(t));
  t == DType::bf16 ? widen_typed<bf16>(wide, data, n) : widen_typed<f16>(wide, data, n);
}
void narrow(void* data, const float* wide, int64_t n, DType t) {
  CHECK(is_16bit(t), "narrow to %s", dtype_name(t));
  t == DType::bf16 ? narrow_typed<bf16>(data, wide, n) : narrow_typed<f16>(data, wide, n);
}

Slice slice_of(int64_t n, int64_t element_bytes, int rank, int ranks) {
  const int64_t line = 64 / element_bytes;
  const int64_t part = ((n + ranks - 1) / ranks + line - 1) / line * line;
  const int64_t begin = std::min(n, rank * part);
  return {begin, std::min(part, n - begin)};
}

void reduce_in_rank_order(const RankOrderReduce& r) {
  check_reducible("reduction", r.t, r.op);
  switch (r.t) {
    case DType::f32: return reduce_op<float>(r);
    case DType::f64: return reduce_op<double>(r);
    case DType::i64: return reduce_op<int64_t>(r);
    case DType::bf16: return sum_16bit<bf16>(r);
    default: return sum_16bit<f16>(r);
  }
}

}  // namespace rw
