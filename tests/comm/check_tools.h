// What the checks of communicators are made of.
#pragma once
#include <fmt/core.h>

#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include "libcore/comm/comm.h"

namespace rw::checks {

template <typename... Args>
void expect(bool ok, fmt::format_string<Args...> format, Args&&... args) {
  if (!ok) throw std::runtime_error("check failed: " + fmt::format(format, std::forward<Args>(args)...));
}

template <typename T>
constexpr DType kType = std::is_same_v<T, float>    ? DType::f32
                        : std::is_same_v<T, double> ? DType::f64
                                                    : DType::i64;

// 0, 1, primes, around a cache line, around the small limit (8 KiB) and the stage (64 KiB) in f32 and f64, several
// stages.
inline const std::vector<int64_t> kSizes = {0,    1,    2,    3,     15,    16,    17,     101,   1023,
                                            1025, 2048, 2049, 16385, 32768, 32769, 100003, 140009};

inline int64_t value(int rank, int64_t i) { return (i * 7 + rank * 13 + (i * rank) % 5) % 101 - 50; }

// n elements in private memory (at an odd multiple of the element size) or in the communicator's, with canaries around.
template <typename T>
class Guarded {
 public:
  Guarded(Comm& comm, int64_t n, bool shared) : n_(n) {
    if (shared) buffer_ = comm.allocate((n + 2 * kGuard) * static_cast<int64_t>(sizeof(T)));
    else private_.resize(static_cast<size_t>(n + 2 * kGuard));
    base_ = shared ? static_cast<T*>(buffer_.data) : private_.data();
    for (int64_t i = 0; i < kGuard; ++i) base_[i] = base_[kGuard + n + i] = T(kCanary);
  }
  T* data() { return base_ + kGuard; }
  T& operator[](int64_t i) { return base_[kGuard + i]; }
  void check(const char* what) {
    for (int64_t i = 0; i < kGuard; ++i)
      expect(base_[i] == T(kCanary) && base_[kGuard + n_ + i] == T(kCanary), "{}: wrote outside of {} elements", what,
             n_);
  }

 private:
  static constexpr int64_t kGuard = 3;
  static constexpr int kCanary = 77;
  int64_t n_;
  SharedBuffer buffer_;
  std::vector<T> private_;
  T* base_ = nullptr;
};

// Every way to deal n elements out that is worth a test: even, all to one rank, growing parts, empty parts between.
std::vector<std::vector<int64_t>> deals(int64_t n, int ranks);

}  // namespace rw::checks
