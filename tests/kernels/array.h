// An operand of a kernel under test: f32, bf16 or f16 elements that begin one element past an aligned address, between
// canaries; and the loop over the op tables that this CPU has.
#pragma once
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/cpu/bf16.h"
#include "kernels/cpu/f16.h"
#include "kernels/cpu/isa.h"
#include "kernels/ops.h"
#if defined(RW_TEST_CUDA)
#include "tests/cuda/cuda_tables.h"
#endif

namespace rw::test {

// Half a unit in the last place, relative: the error of one rounding.
inline double unit_roundoff(DType t) { return t == DType::f32 ? 0x1p-24 : t == DType::bf16 ? 0x1p-8 : 0x1p-11; }
constexpr double kU = 0x1p-24;
// Of the rounding of a value that is near y to the type: relative for normal numbers (1 % to spare for "near"), half of
// the smallest step below them. That of f32 and bf16 is left to the kernels' own floors.
inline double rounding_error(DType t, double y) {
  return std::max(1.01 * unit_roundoff(t) * std::abs(y), t == DType::f16 ? 0x1p-25 : 0.0);
}
// The activation types.
constexpr DType kActivations[] = {DType::f32, DType::bf16, DType::f16};

class Array {
 public:
  Array(DType t, int64_t n)
      : t_(t), n_(n), bytes_(static_cast<size_t>(2 * kGuard + n * dtype_bytes(t)) + 64, kCanary) {}
  // Uniform in [-range, range), a function of the seed; what is stored is rounded to the type.
  Array(DType t, int64_t n, uint64_t seed, double range = 1) : Array(t, n) {
    for (int64_t i = 0; i < n; ++i) {
      uint64_t z = seed * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(i) * 0xd1342543de82ef95u + 1;
      z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
      z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
      set(i, range * (static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-52 - 1));
    }
    REQUIRE((n < 2 || (*this)[0] != (*this)[n - 1]));
  }

  Array(Array&&) = default;
  Array& operator=(Array&&) = default;
  Array(const Array&) = delete;  // the elements' place depends on the address: copy_of makes it anew

  DType type() const { return t_; }
  int64_t size() const { return n_; }
  void* data() { return base() + kGuard + dtype_bytes(t_); }
  const void* data() const { return const_cast<Array*>(this)->data(); }
  float* f32() { return static_cast<float*>(data()); }

  double operator[](int64_t i) const {
    if (t_ == DType::f32) return static_cast<double>(static_cast<const float*>(data())[i]);
    if (t_ == DType::bf16) return static_cast<double>(to_f32(static_cast<const bf16*>(data())[i]));
    return static_cast<double>(to_f32(static_cast<const f16*>(data())[i]));
  }
  void set(int64_t i, double x) {
    const float f = static_cast<float>(x);
    if (t_ == DType::f32) static_cast<float*>(data())[i] = f;
    else if (t_ == DType::bf16) static_cast<bf16*>(data())[i] = to_bf16(f);
    else static_cast<f16*>(data())[i] = to_f16(f);
  }
  std::vector<double> values() const {
    std::vector<double> v;
    for (int64_t i = 0; i < n_; ++i) v.push_back((*this)[i]);
    return v;
  }
  bool canaries_alive() const {
    const uint8_t* begin = static_cast<const uint8_t*>(data());
    const uint8_t* end = begin + n_ * dtype_bytes(t_);
    const auto is_canary = [](uint8_t b) { return b == kCanary; };
    return std::all_of(bytes_.data(), begin, is_canary) && std::all_of(end, bytes_.data() + bytes_.size(), is_canary);
  }
  bool same_bits(const Array& o) const {
    return n_ == o.n_ && std::memcmp(data(), o.data(), static_cast<size_t>(n_ * dtype_bytes(t_))) == 0;
  }

 private:
  static constexpr int64_t kGuard = 64;
  static constexpr uint8_t kCanary = 0xa5;  // as a float -2.9e-16, as a bf16 -2.9e-16: a kernel that reads it shows
  uint8_t* base() {
    const uintptr_t p = reinterpret_cast<uintptr_t>(bytes_.data());
    return bytes_.data() + ((p + 63) / 64 * 64 - p);
  }
  DType t_;
  int64_t n_;
  std::vector<uint8_t> bytes_;
};

inline Array copy_of(const Array& a) {
  Array b(a.type(), a.size());
  std::memcpy(b.data(), a.data(), static_cast<size_t>(a.size() * dtype_bytes(a.type())));
  return b;
}

// f(table, type) for every instruction set of this CPU and each activation type; in the build of these tests for the
// cuda table, for that one in every order of its threads.
#if defined(RW_TEST_CUDA)
template <class F>
void each_table_and_type(const F& f) {
  for (DType t : kActivations) in_each_order([&] { f(waited_cuda_ops(), t); });
}
#else
template <class F>
void each_table_and_type(const F& f) {
  for (Isa isa : kIsas) {
    if (!isa_supported(isa)) continue;
    for (DType t : kActivations) {
      INFO("isa " << std::string(isa_name(isa)) << ", type " << std::string(dtype_name(t)));
      f(cpu_ops(isa_name(isa)), t);
    }
  }
}
#endif

// |got - want| <= bound, said with its place.
inline void check_near(double got, double want, double bound, const char* what, int64_t at) {
  if (std::abs(got - want) <= bound) return;
  INFO(std::string(what) << "[" << at << "]: got " << got << ", want " << want << ", error " << std::abs(got - want)
                         << ", bound " << bound);
  FAIL_CHECK("outside the bound");
}

}  // namespace rw::test
