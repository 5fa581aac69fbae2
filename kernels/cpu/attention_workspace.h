// How attention lays out its workspace.
#pragma once
#include "kernels/cpu/attention_tiles.h"
#include "kernels/ops.h"

namespace rw::RW_ISA {
namespace {

// Hands out 64-byte aligned pieces of a buffer, or only adds them up when the buffer is null.
struct Carver {
  char* base = nullptr;
  int64_t used = 0;

  template <class T>
  T* take(int64_t n) {
    T* p = base == nullptr ? nullptr : reinterpret_cast<T*>(base + used);
    used += round_up(n * static_cast<int64_t>(sizeof(T)), 64);
    return p;
  }
};

inline char* align_up(void* p) {
  return reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(p) + 63) & ~uintptr_t{63});
}

// Sizes in the policy's units: dp padded head size, dw its words.
template <class M>
struct HeadShape {
  int64_t d, dp, dw;
  explicit HeadShape(int64_t head_size) : d(head_size), dp(round_up(head_size, M::kPadD)), dw(dp / M::kPair) {}
  int64_t rows_words() const { return kBlock * dw; }                  // a block of 64 rows, as A
  int64_t columns_words() const { return dp * (kBlock / M::kPair); }  // the same transposed
};

}  // namespace
}  // namespace rw::RW_ISA
