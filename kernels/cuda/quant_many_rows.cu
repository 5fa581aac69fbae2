// Quantised products on tensor cores: upper and lower bytes of a are multiplied apart with the weights' bytes, exactly,
// and come together at the end of each block of k. Tall tiles (64 rows) for many rows; short ones (16 rows, 32 columns,
// long steps) where reading the weights is what takes the time.
#include "kernels/cuda/arch.cuh"
#include "kernels/cuda/quant_layout.cuh"

namespace rw::cuda {
namespace {

constexpr int kThreads = 128, kStages = 3;
constexpr int64_t kShortRows = 32;  // up to here short tiles

template <bool kWide, bool kTall>
struct Tiles {
  static constexpr int kRows = kTall ? 64 : 16, kColumns = kTall ? 64 : 32;
  static constexpr int kMine = kTall ? 8 : 1;     // a warp's tiles of 8 columns
  static constexpr int kStep = kTall ? 64 : 256;  // of k to a stage
  static constexpr int kAStride = kStep + 16;     // bytes: an odd number of 16
  static constexpr int kBRow = kWide ? kStep : kStep / 2, kBStride = kBRow + 16;
  static constexpr int kABytes = 2 * kRows * kAStride, kStageBytes = kABytes + kColumns * kBStride;

  const QuantProduct& p;
  const QuantShape& q;
  unsigned char* shared;
  int64_t row0, column0;
  int warp, lane;
  FragmentI upper[kMine], lower[kMine];
  FragmentC sum[kMine];
  float a_scale[2], b_scale[kMine][2];
  uint32_t own[kMine];

  __device__ Tiles(const QuantProduct& product, unsigned char* memory)
      : p(product),
        q(product.b.shape),
        shared(memory),
        row0(static_cast<int64_t>(blockIdx.y) * kRows),
        column0(static_cast<int64_t>(blockIdx.x) * kColumns),
        warp(static_cast<int>(threadIdx.x) / kWarp),
        lane(static_cast<int>(threadIdx.x) % kWarp) {
#pragma unroll
    for (int j = 0; j < kMine; ++j) sum[j] = FragmentC{};
  }
  __device__ int my_row() const { return kTall ? 16 * warp : 0; }
  __device__ int my_column() const { return kTall ? 0 : 8 * warp; }

  // Puts the copies of a step on their way; what lies outside becomes zeros.
  __device__ void fetch(int64_t k, int stage) const {
    if (k >= q.padded) return;
    unsigned char* const to = shared + stage * kStageBytes;
    constexpr int kAPieces = kStep / 16, kBPieces = kBRow / 16;
    for (int i = static_cast<int>(threadIdx.x); i < 2 * kRows * kAPieces; i += kThreads) {
      const int line = i / kAPieces, c = i % kAPieces * 16, half = line / kRows;
      const int64_t row = row0 + line % kRows;
      const bool there = row < p.m && k + c < q.padded;
      copy_async(to + line * kAStride + c, p.a.numbers + (there ? (2 * row + half) * q.padded + k + c : 0),
                 there ? 16 : 0);
    }
    for (int i = static_cast<int>(threadIdx.x); i < kColumns * kBPieces; i += kThreads) {
      const int line = i / kBPieces, c = i % kBPieces * 16;
      const int64_t column = column0 + line, at = (kWide ? k : k / 2) + c;
      const bool there = column < q.n && at < q.row_bytes;
      copy_async(to + kABytes + line * kBStride + c, p.b.rows + (there ? column * q.row_bytes + at : 0),
                 there ? 16 : 0);
    }
  }

  // The scales are asked for where a block begins, and needed where it ends.
  __device__ void begin_block(int64_t block) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int64_t row = row0 + my_row() + lane / 4 + 8 * h;
      a_scale[h] = row < p.m ? p.a.scales[row * q.blocks + block] : 0.F;
    }
#pragma unroll
    for (int j = 0; j < kMine; ++j) {
      upper[j] = lower[j] = FragmentI{};
      const int64_t tile = column0 + my_column() + 8 * j, column = tile + lane % 4 * 2;
#pragma unroll
      for (int e = 0; e < 2; ++e)
        b_scale[j][e] = column + e < q.n ? to_float(p.b.scales[(column + e) * q.blocks + block]) : 0.F;
      if constexpr (!kWide) own[j] = tile + lane / 4 < q.n ? p.b.own[(tile + lane / 4) * q.blocks + block] : 0U;
    }
  }
  __device__ void end_block() {
#pragma unroll
    for (int j = 0; j < kMine; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        sum[j].x[i] += block_term(whole_sum(upper[j].x[i], lower[j].x[i]), a_scale[i / 2], b_scale[j][i % 2]);
  }

  // 64 of k, `at` in the stage; the first of them is at k in its block.
  __device__ void multiply(int stage, int at, int k) {
    const int group = static_cast<int>(q.group), groups[2] = {k / group, (k + 32) / group};
    const unsigned char* const from = shared + stage * kStageBytes;
    const unsigned char* const a = from + (my_row() + lane % 16) * kAStride + at + lane / 16 * 16;
    FragmentA high[2], low[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      load_matrices(high[h].x, a + 32 * h);
      load_matrices(low[h].x, a + kRows * kAStride + 32 * h);
    }
#pragma unroll
    for (int j = 0; j < kMine; ++j) {
      uint32_t b[4];
      if constexpr (kWide) {
        load_matrices(b, from + kABytes + (my_column() + 8 * j + lane % 8) * kBStride + at + lane / 8 * 16);
      } else {
        const auto* words =
            reinterpret_cast<const uint32_t*>(from + kABytes + (my_column() + 8 * j + lane / 4) * kBStride + at / 2);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          b[i] = four_of_int4(words[2 * i + lane % 4 / 2], lane % 2, own_scale(own[j], groups[i / 2]));
      }
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        mma_16x8x32(upper[j], high[h], {{b[2 * h], b[2 * h + 1]}});
        mma_16x8x32(lower[j], low[h], {{b[2 * h], b[2 * h + 1]}});
      }
    }
  }

  __device__ void run() {
    for (int i = 0; i < kStages - 1; ++i) {
      fetch(i * kStep, i);
      copy_async_commit();
    }
    int stage = 0, in_block = 0;
    int64_t block = 0;
    for (int64_t k = 0; k < q.padded; k += kStep, stage = stage + 1 == kStages ? 0 : stage + 1) {
      copy_async_wait<kStages - 2>();
      __syncthreads();
      fetch(k + (kStages - 1) * kStep, stage == 0 ? kStages - 1 : stage - 1);
      copy_async_commit();
      for (int at = 0; at < kStep && k + at < q.padded; at += static_cast<int>(kQuantStep)) {
        if (in_block == 0) begin_block(block);
        multiply(stage, at, in_block);
        in_block += static_cast<int>(kQuantStep);
        if (in_block < q.block && k + at + kQuantStep < q.padded) continue;
        end_block();
        in_block = 0;
        ++block;
      }
    }
    copy_async_wait<0>();
  }

  __device__ void store() const {
#pragma unroll
    for (int j = 0; j < kMine; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int64_t row = row0 + my_row() + lane / 4 + i / 2 * 8;
        const int64_t column = column0 + my_column() + 8 * j + lane % 4 * 2 + i % 2;
        if (row < p.m && column < q.n) store_result(p, row, column, sum[j].x[i]);
      }
  }
};

template <bool kWide, bool kTall>
__global__ void __launch_bounds__(kThreads, 2) many_rows_kernel(QuantProduct p) {
  DYN_SHARED(unsigned char, shared);
  Tiles<kWide, kTall> tiles(p, shared);
  tiles.run();
  tiles.store();
}

template <bool kWide, bool kTall>
void launch(const QuantProduct& p, Stream s) {
  using Shape = Tiles<kWide, kTall>;
  constexpr size_t kBytes = size_t{kStages} * Shape::kStageBytes;
  dim3 grid = blocks_for(p.b.shape.n, Shape::kColumns);
  grid.y = blocks_for(p.m, Shape::kRows).x;
  allow_shared(many_rows_kernel<kWide, kTall>, kBytes);
  LAUNCH((many_rows_kernel<kWide, kTall>), grid, dim3(kThreads), kBytes, native(s), p);
}

}  // namespace

void quant_many_rows(const QuantProduct& p, Stream s) {
  const bool tall = p.m > kShortRows;
  if (p.b.shape.wide) (tall ? launch<true, true> : launch<true, false>)(p, s);
  else (tall ? launch<false, true> : launch<false, false>)(p, s);
}

}  // namespace rw::cuda
