// Tiles of attention as warpgroups take them.
#pragma once
#include "kernels/cuda/attention_tiles.cuh"
#include "kernels/cuda/warpgroup.cuh"

namespace rw::cuda {

// Registers of a thread in a block that has a multiprocessor alone.
constexpr int most_registers(int threads) { return 65536 / threads / 8 * 8; }

// Rows from `from` on, of which `rows` are there, into panels; zeros for the others. Done at the wait.
template <int kRows, int kD, int kThreads, class T>
__device__ __forceinline__ void load_panels(T* tile, const T* from, int64_t ld, int rows) {
  constexpr int kPieces = kD / 8, kStep = kThreads / kPieces;
  static_assert(kThreads % kPieces == 0 && kStep % 8 == 0);  // a thread stays in its column and its place of eight rows
  // Three warpgroups leave no registers for addresses that go ahead.
  [[maybe_unused]] constexpr int kUnroll = kThreads > 2 * kWarpgroup ? 1 : 8;
  const int first = static_cast<int>(threadIdx.x) / kPieces, column = static_cast<int>(threadIdx.x) % kPieces * 8;
  const T* at = from + first * ld + column;
  T* to = tile + panel_place(kRows, first, column);
#pragma unroll kUnroll
  for (int row = 0; row < kRows; row += kStep) {
    if (kRows % kStep == 0 || row + first < kRows) {
      const bool there = row + first < rows;
      copy_async(to, there ? at : from, there ? 16 : 0);
    }
    at += kStep * ld;
    to += kStep * kPanel;
  }
}

}  // namespace rw::cuda
