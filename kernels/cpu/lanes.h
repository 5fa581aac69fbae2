// Loops over a row by vectors: one body serves the whole vectors and the short one at the row's end.
#pragma once
#include "kernels/cpu/simd.h"
#include "kernels/dtype.h"
#include "libcore/base/check.h"

#define RW_LAMBDA __attribute__((always_inline))

namespace rw::RW_ISA {

// How much of a vector a step of the loop covers: all lanes, or the first n.
struct Whole {};
struct Short {
  int64_t n;
};

template <class T>
RW_INLINE vf load(const T* p, Whole) {
  return load(p);
}
template <class T>
RW_INLINE vf load(const T* p, Short s) {
  return load_n(p, s.n);
}
template <class T>
RW_INLINE void store(T* p, vf v, Whole) {
  store(p, v);
}
template <class T>
RW_INLINE void store(T* p, vf v, Short s) {
  store_n(p, v, s.n);
}

// v with the lanes that the step does not cover replaced by fill.
RW_INLINE vf covered(vf v, Whole, float) { return v; }
RW_INLINE vf covered(vf v, Short s, float fill) {
  float lane[kW];
  for (int64_t i = 0; i < kW; ++i) lane[i] = static_cast<float>(i);
  return load(lane) < splat(static_cast<float>(s.n)) ? v : splat(fill);
}

// f(i, Whole or Short) for each vector of [begin, end).
template <class F>
RW_INLINE void each_vector(int64_t begin, int64_t end, const F& f) {
  int64_t i = begin;
  for (; i + kW <= end; i += kW) f(i, Whole{});
  if (i < end) f(i, Short{end - i});
}

// f(i, k, Whole or Short) for each vector of [0, n), k cycling through 0..3: four independent accumulators hide the
// latency of the adds. The order depends on n alone.
template <class F>
RW_INLINE void each_vector4(int64_t n, const F& f) {
  int64_t i = 0;
  for (; i + 4 * kW <= n; i += 4 * kW) {
    f(i, 0, Whole{});
    f(i + kW, 1, Whole{});
    f(i + 2 * kW, 2, Whole{});
    f(i + 3 * kW, 3, Whole{});
  }
  for (; i + kW <= n; i += kW) f(i, 0, Whole{});
  if (i < n) f(i, 1, Short{n - i});
}

// Asks for the memory 2 KiB past p, for loops that compute much between loads: the hardware prefetcher stops at each
// 4 KiB page, and the instruction window does not reach the next one (cross_entropy: 1.3 to 1.6 times faster).
RW_INLINE void fetch_ahead(const void* p) { __builtin_prefetch(static_cast<const char*>(p) + 2048); }

// f(float{}), f(bf16{}) or f(f16{}).
template <class F>
RW_INLINE void with_type(DType t, const F& f) {
  switch (t) {
    case DType::f32: return f(float{});
    case DType::bf16: return f(bf16{});
    case DType::f16: return f(f16{});
    default: CHECK(false, "activations are f32, bf16 or f16, found dtype %d", static_cast<int>(t));
  }
}

// Rows of c elements that are worth a thread of their own.
RW_INLINE int64_t row_grain(int64_t c) { return 1 + 16384 / (c + 1); }
// Elements likewise; a multiple of every vector and cache line.
constexpr int64_t kElementGrain = 16384;

}  // namespace rw::RW_ISA
