// What the kernels of blockwise attention (Dao et al. 2022, 2023) share: which rows a block works on, and tiles of
// 16-bit elements in shared memory as the tensor cores take them.
//
// How many rows there are stands in cu_seqlens, in device memory, and the host does not wait to read it: a grid has as
// many blocks as the device holds at once, and each walks over tiles until there are no more.
#pragma once
#include "kernels/cuda/arch.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"

namespace rw::cuda {

constexpr float kLog2E = 1.4426950408889634F, kLn2 = 0.6931471805599453F;

__device__ __forceinline__ int lesser(int a, int b) { return a < b ? a : b; }
__device__ __forceinline__ int lane_index() { return static_cast<int>(threadIdx.x) % kWarp; }
__device__ __forceinline__ int warp_index() { return static_cast<int>(threadIdx.x) / kWarp; }

// ---- which rows
// ------------------------------------------------------------------------------------------------------

// The rows of a packed batch: sequence s holds cu_seqlens[s] .. cu_seqlens[s + 1].
struct Sequences {
  const int32_t* cu_seqlens;
  int n, heads;  // heads: over which the tiles of a sequence are repeated
};

// Rows first, first + 1, ... of a sequence of `length` rows that begins at row `begin`, under one head.
struct Tile {
  int begin, length, first, head;
  __device__ int64_t row(int i) const { return static_cast<int64_t>(begin) + i; }  // of the batch; i: of the sequence
};

enum class Heaviest : uint8_t { first, last };

// The tiles of kRows rows that one block works on. Tiles are numbered sequence by sequence, in a sequence those with
// the most work first (causal: the later a query, the more keys it has), heads innermost. Blocks take them in turn,
// forth and back, so that each gets light ones for its heavy ones.
template <int kRows, Heaviest kHeaviest>
class TileWalk {
 public:
  // By all threads of the block alike; false when there are no more.
  __device__ bool next(const Sequences& s, Tile& tile) {
    const auto blocks = static_cast<int>(gridDim.x), mine = static_cast<int>(blockIdx.x);
    const int64_t index = static_cast<int64_t>(round_) * blocks + (round_ % 2 == 0 ? mine : blocks - 1 - mine);
    ++round_;
    // A lane a sequence. The search goes on where the last one ended, as indices only grow.
    for (; sequence_ < s.n; sequence_ += kWarp) {
      const int seq = sequence_ + lane_index();
      const int begin = seq < s.n ? s.cu_seqlens[seq] : 0, length = seq < s.n ? s.cu_seqlens[seq + 1] - begin : 0;
      const int tiles = (length + kRows - 1) / kRows;
      const int64_t n = static_cast<int64_t>(tiles) * s.heads;
      int64_t up_to = n;
      for (int d = 1; d < kWarp; d *= 2) {
        const int64_t other = __shfl_up_sync(kFullMask, up_to, static_cast<unsigned>(d));
        if (lane_index() >= d) up_to += other;
      }
      const unsigned beyond = __ballot_sync(kFullMask, before_ + up_to > index);
      if (beyond == 0) {
        before_ += __shfl_sync(kFullMask, up_to, kWarp - 1);
        continue;
      }
      const int at = __ffs(static_cast<int>(beyond)) - 1;
      const int64_t i = index - before_ - __shfl_sync(kFullMask, up_to - n, at);
      const int of = __shfl_sync(kFullMask, tiles, at), place = static_cast<int>(i / s.heads);
      tile.begin = __shfl_sync(kFullMask, begin, at);
      tile.length = __shfl_sync(kFullMask, length, at);
      tile.head = static_cast<int>(i % s.heads);
      tile.first = (kHeaviest == Heaviest::first ? place : of - 1 - place) * kRows;
      return true;
    }
    return false;
  }

 private:
  int round_ = 0, sequence_ = 0;
  int64_t before_ = 0;  // tiles of the sequences before sequence_
};

// What a block takes of a multiprocessor: `registers` a thread, at most.
struct BlockNeeds {
  int threads, registers;
  size_t shared_bytes;
};
// Blocks that a device of so many multiprocessors, each with so much shared memory, holds at once: of 65,536 registers
// and 2,048 threads (CUDA C++ Programming Guide, compute capabilities 8.0 and 9.0); one each at least.
constexpr int64_t resident_blocks(int64_t multiprocessors, size_t shared_of_each, const BlockNeeds& block) {
  constexpr size_t kReserved = 1024;  // shared memory that the system takes of each block
  const int64_t granted = (block.registers + 7) / 8 * 8;
  int64_t fit = 65536 / (block.threads * granted);
  if (fit > 2048 / block.threads) fit = 2048 / block.threads;
  const auto by_shared = static_cast<int64_t>((shared_of_each + kReserved) / (block.shared_bytes + kReserved));
  if (fit > by_shared) fit = by_shared;
  return multiprocessors * (fit < 1 ? 1 : fit);
}
inline dim3 walking_grid(const BlockNeeds& block) {
  int device = 0, multiprocessors = 0, shared = 0;
  RW_CUDA(cudaGetDevice(&device));
  RW_CUDA(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
  RW_CUDA(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  return dim3(static_cast<unsigned>(resident_blocks(multiprocessors, static_cast<size_t>(shared), block)));
}
constexpr int kMostRegisters = 255;  // that a thread can have

// ---- tiles in shared memory
// ----------------------------------------------------------------------------------------------

// Elements from row to row of a tile: an odd number of 16-byte pieces, so that the 8 rows of a matrix that ldmatrix
// reads lie in different banks.
template <int kD>
constexpr int kTileStride = (kD / 8 | 1) * 8;
// Of `rows` rows.
template <int kD>
constexpr size_t tile_bytes(int rows) {
  return static_cast<size_t>(rows) * kTileStride<kD> * 2;
}

// Rows from `from` on, of which `rows` are there; zeros for the others. Done at the wait.
template <int kRows, int kD, int kThreads, class T>
__device__ __forceinline__ void load_tile(T* tile, const T* from, int64_t ld, int rows) {
  constexpr int kPieces = kD / 8;
  if constexpr (kThreads % kPieces == 0) {  // a thread stays in its column
    constexpr int kStep = kThreads / kPieces;
    static_assert(kRows % kStep == 0);
    const int first = static_cast<int>(threadIdx.x) / kPieces, column = static_cast<int>(threadIdx.x) % kPieces * 8;
    const T* at = from + first * ld + column;
    T* const to = tile + first * kTileStride<kD> + column;
#pragma unroll
    for (int row = 0; row < kRows; row += kStep) {
      const bool there = row + first < rows;
      copy_async(to + row * kTileStride<kD>, there ? at : from, there ? 16 : 0);
      at += kStep * ld;
    }
  } else {
    for (int i = static_cast<int>(threadIdx.x); i < kRows * kPieces; i += kThreads) {
      const int row = i / kPieces, column = i % kPieces * 8;
      const bool there = row < rows;
      copy_async(tile + row * kTileStride<kD> + column, from + (there ? row * ld + column : 0), there ? 16 : 0);
    }
  }
}

// Two neighbours in shared memory.
__device__ __forceinline__ void store_pair(void* at, uint32_t pair) { *static_cast<uint32_t*>(at) = pair; }

__device__ __forceinline__ uint32_t bits_of(__nv_bfloat162 x) { return pack_pair<bf16>(x.x, x.y); }
__device__ __forceinline__ uint32_t bits_of(__half2 x) { return pack_pair<f16>(x.x, x.y); }
// Two sums rounded to T.
template <class T>
__device__ __forceinline__ uint32_t round_pair(float low, float high) {
  if constexpr (std::is_same_v<T, bf16>) return bits_of(__floats2bfloat162_rn(low, high));
  else return bits_of(__floats2half2_rn(low, high));
}

// Of sums (16, 16), in the two fragments c[0] and c[1], the left factor of a product: the lanes hold the same places.
template <class T>
__device__ __forceinline__ FragmentA as_left_factor(const FragmentC* c) {
  return {{round_pair<T>(c[0].x[0], c[0].x[1]), round_pair<T>(c[0].x[2], c[0].x[3]),
           round_pair<T>(c[1].x[0], c[1].x[1]), round_pair<T>(c[1].x[2], c[1].x[3])}};
}

// (16, 16) at (row, column) of a tile.
template <int kD, class T>
__device__ __forceinline__ FragmentA left_factor(const T* tile, int row, int column) {
  FragmentA a;
  const int lane = lane_index();
  load_matrices(a.x, tile + (row + lane % 16) * kTileStride<kD> + column + lane / 16 * 8);
  return a;
}

// c (16 kM, kN) += a (16 kM, kD) * b (kN, kD)^T, with a in rows a_row.. of one tile and b in rows 0.. of another.
template <int kD, int kM, int kN, class T>
__device__ __forceinline__ void add_times_rows(FragmentC (&c)[kM][kN / 8], const T* a, int a_row, const T* b) {
  const int lane = lane_index();
  // Loads that go far ahead take registers that the sums need.
  [[maybe_unused]] constexpr int kUnroll = kM == 1 ? 2 : 1;
  const T* const b_lane = b + (lane / 16 * 8 + lane % 8) * kTileStride<kD> + lane / 8 % 2 * 8;
#pragma unroll kUnroll
  for (int k = 0; k < kD; k += 16) {
    FragmentA left[kM];
#pragma unroll
    for (int m = 0; m < kM; ++m) left[m] = left_factor<kD>(a, a_row + 16 * m, k);
#pragma unroll
    for (int n = 0; n < kN; n += 16) {
      uint32_t r[4];
      load_matrices(r, b_lane + n * kTileStride<kD> + k);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        mma_16x8x16<T>(c[m][n / 8], left[m], FragmentB{{r[0], r[1]}});
        mma_16x8x16<T>(c[m][n / 8 + 1], left[m], FragmentB{{r[2], r[3]}});
      }
    }
  }
}

// c (16 kM, kColumns) += a (16 kM, kK) * b (kK, kColumns), with a rounded from sums and b in columns `column`.. of a
// tile's rows 0...
template <int kD, int kM, int kK, int kColumns, class T>
__device__ __forceinline__ void add_times_columns(FragmentC (&c)[kM][kColumns / 8], const FragmentC (&a)[kM][kK / 8],
                                                  const T* b, int column) {
  const int lane = lane_index();
  const T* const b_lane = b + lane % 16 * kTileStride<kD> + column + lane / 16 * 8;
#pragma unroll
  for (int k = 0; k < kK; k += 16) {
    FragmentA left[kM];
#pragma unroll
    for (int m = 0; m < kM; ++m) left[m] = as_left_factor<T>(&a[m][k / 8]);
#pragma unroll
    for (int n = 0; n < kColumns; n += 16) {
      uint32_t r[4];
      load_matrices_transposed(r, b_lane + k * kTileStride<kD> + n);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        mma_16x8x16<T>(c[m][n / 8], left[m], FragmentB{{r[0], r[1]}});
        mma_16x8x16<T>(c[m][n / 8 + 1], left[m], FragmentB{{r[2], r[3]}});
      }
    }
  }
}

// Sums (16, kColumns) of one warp, rounded, into columns `column`.. of rows `row`.. of a tile.
template <int kD, int kColumns, class T>
__device__ __forceinline__ void put_sums(T* tile, int row, int column, const FragmentC (&c)[kColumns / 8], float upper,
                                         float lower) {
  const int g = lane_index() / 4, t = lane_index() % 4;
  T* const at = tile + (row + g) * kTileStride<kD> + column + 2 * t;
#pragma unroll
  for (int n = 0; n < kColumns / 8; ++n) {
    store_pair(at + 8 * n, round_pair<T>(c[n].x[0] * upper, c[n].x[1] * upper));
    store_pair(at + 8 * n + 8 * kTileStride<kD>, round_pair<T>(c[n].x[2] * lower, c[n].x[3] * lower));
  }
}

// Columns `column`.. of rows `row`.. of a tile, of which `rows` (at most kRows; none when negative) are there, to
// global memory `to`, by one warp.
template <int kRows, int kD, int kColumns, class T>
__device__ __forceinline__ void store_rows(T* to, int64_t ld, const T* tile, int row, int column, int rows) {
  constexpr int kPieces = kColumns / 8;
  for (int i = lane_index(); i < kRows * kPieces; i += kWarp) {
    const int r = i / kPieces, c = column + i % kPieces * 8;
    if (r < rows) store_piece(to + r * ld + c, load_piece(tile + (row + r) * kTileStride<kD> + c));
  }
}

}  // namespace rw::cuda
