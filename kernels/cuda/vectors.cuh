// Memory in pieces of 16 bytes. The only way that kernels read or write more than one element at once: on the host the
// twins look at alignment, and AddressSanitizer at bounds.
#pragma once
#include <cstdint>
#include <stdexcept>

#include "kernels/cuda/numbers.cuh"

namespace rw::cuda {

template <class T>
struct alignas(16) Piece {
  static constexpr int kSize = 16 / static_cast<int>(sizeof(T));
  T x[kSize];
};

#if !defined(__CUDACC__)
inline void check_aligned(const void* at) {
  if (reinterpret_cast<uintptr_t>(at) % 16 != 0) throw std::runtime_error("a 16-byte access that is not aligned");
}
#endif

// `at` is a multiple of 16 bytes.
template <class T>
__device__ __forceinline__ Piece<T> load_piece(const T* at) {
#if defined(__CUDACC__)
  union {
    uint4 raw;
    Piece<T> piece;
  } u;
  u.raw = *reinterpret_cast<const uint4*>(at);
  return u.piece;
#else
  check_aligned(at);
  Piece<T> piece;
  for (int i = 0; i < Piece<T>::kSize; ++i) piece.x[i] = at[i];
  return piece;
#endif
}
template <class T>
__device__ __forceinline__ void store_piece(T* at, const Piece<T>& piece) {
#if defined(__CUDACC__)
  *reinterpret_cast<uint4*>(at) = *reinterpret_cast<const uint4*>(&piece);
#else
  check_aligned(at);
  for (int i = 0; i < Piece<T>::kSize; ++i) at[i] = piece.x[i];
#endif
}

// Whether rows of `ld` elements from `at` on may be read in pieces.
template <class T>
inline bool takes_pieces(const T* at, int64_t ld) {
  return reinterpret_cast<uintptr_t>(at) % 16 == 0 && ld % Piece<T>::kSize == 0;
}

}  // namespace rw::cuda
