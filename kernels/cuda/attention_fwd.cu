// Blockwise attention, forward: a block has a tile of queries and goes through the keys up to them, with the softmax
// made as it goes (Milakov & Gimelshein 2018; Dao 2023, algorithm 1). A warp has rows of its own from scores to sums,
// so that probabilities stay in registers.
#include "kernels/cuda/attention_plain.cuh"
#include "kernels/cuda/attention_tiles.cuh"
#include "kernels/cuda/table.h"

namespace rw::cuda {
namespace {

// 128 queries a block: with fewer, keys and values are read so often that the L2 cache limits. A warp with two pieces
// of 16 rows reads them from shared memory half as often as one with a single piece; heads too large for its registers
// have twice the warps instead.
template <int kD>
struct FwdShape {
  static constexpr int kM = kD <= 96 ? 2 : 1;  // 16-row pieces of a warp
  static constexpr int kThreads = kD <= 96 ? 128 : 256, kRows = 16 * kM * kThreads / kWarp;
  static constexpr int kKeys = kD <= 64 || kD == 128 ? 64 : 32;
  static constexpr size_t kShared = tile_bytes<kD>(kRows + 4 * kKeys);
};

template <class T>
struct FwdArgs {
  T* o;
  float* lse;
  const T *q, *k, *v;
  int64_t ldo, ldq, ldkv;
  Sequences sequences;
  int group;  // query heads of a key/value head
  float scale;
};

// What a warp has of its rows; row g + 8 i of piece m at [m][i].
template <int kD>
struct FwdRows {
  static constexpr int kM = FwdShape<kD>::kM;
  FragmentC o[kM][kD / 8] = {};
  float max[kM][2], sum[kM][2];  // max: of the scores before scaling by |scale|; sum: of this lane's columns
};

// One tile of keys: `ahead` = the warp's first row - the tile's first key. Keys after their query do not count.
template <class T, int kD>
__device__ __forceinline__ void fwd_step(FwdRows<kD>& rows, const T* q, int q_row, const T* k, const T* v, int ahead,
                                         float scale) {
  using S = FwdShape<kD>;
  const int g = lane_index() / 4, t = lane_index() % 4;
  FragmentC s[S::kM][S::kKeys / 8] = {};
  add_times_rows<kD, S::kM, S::kKeys>(s, q, q_row, k);
  if (scale < 0) {
#pragma unroll
    for (int m = 0; m < S::kM; ++m)
#pragma unroll
      for (int n = 0; n < S::kKeys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) s[m][n].x[i] = -s[m][n].x[i];
  }
  if (ahead < S::kKeys - 1) {
#pragma unroll
    for (int m = 0; m < S::kM; ++m)
#pragma unroll
      for (int n = 0; n < S::kKeys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (8 * n + 2 * t + i % 2 > ahead + 16 * m + g + i / 2 * 8) s[m][n].x[i] = -INFINITY;
  }
  const float scale_log2 = fabsf(scale) * kLog2E;
#pragma unroll
  for (int m = 0; m < S::kM; ++m)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float max = rows.max[m][i];
#pragma unroll
      for (int n = 0; n < S::kKeys / 8; ++n) max = fmaxf(max, fmaxf(s[m][n].x[2 * i], s[m][n].x[2 * i + 1]));
      max = fmaxf(max, __shfl_xor_sync(kFullMask, max, 1));
      max = fmaxf(max, __shfl_xor_sync(kFullMask, max, 2));
      const float shrink = exp2_fast((rows.max[m][i] - max) * scale_log2), shift = kRaise<T> - max * scale_log2;
      rows.max[m][i] = max;
      float sum = 0;
#pragma unroll
      for (int n = 0; n < S::kKeys / 8; ++n)
#pragma unroll
        for (int j = 2 * i; j < 2 * i + 2; ++j) {
          s[m][n].x[j] = exp2_fast(fmaf(s[m][n].x[j], scale_log2, shift));
          sum += s[m][n].x[j];
        }
      rows.sum[m][i] = fmaf(rows.sum[m][i], shrink, sum);
#pragma unroll
      for (int n = 0; n < kD / 8; ++n) {
        rows.o[m][n].x[2 * i] *= shrink;
        rows.o[m][n].x[2 * i + 1] *= shrink;
      }
    }
  add_times_columns<kD, S::kM, S::kKeys, kD>(rows.o, s, v, 0);
}

// The warp's rows, divided by their sums, through its own rows of the queries' tile.
template <class T, int kD>
__device__ __forceinline__ void fwd_finish(const FwdArgs<T>& a, FwdRows<kD>& rows, T* q, int q_row, const Tile& tile) {
  using S = FwdShape<kD>;
  const int g = lane_index() / 4, t = lane_index() % 4;
  const int64_t row0 = tile.row(tile.first + q_row);
  const int there = tile.length - tile.first - q_row;
  __syncwarp();
#pragma unroll
  for (int m = 0; m < S::kM; ++m) {
    float inverse[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float sum = rows.sum[m][i];
      sum += __shfl_xor_sync(kFullMask, sum, 1);
      sum += __shfl_xor_sync(kFullMask, sum, 2);
      inverse[i] = 1.F / sum;
      const int r = 16 * m + g + 8 * i;
      if (t == 0 && r < there)
        a.lse[(row0 + r) * a.sequences.heads + tile.head] = rows.max[m][i] * fabsf(a.scale) + logf(sum * kLower<T>);
    }
    put_sums<kD, kD>(q, q_row + 16 * m, 0, rows.o[m], inverse[0], inverse[1]);
  }
  __syncwarp();
  store_rows<16 * S::kM, kD, kD>(a.o + row0 * a.ldo + tile.head * kD, a.ldo, q, q_row, 0, there);
}

template <class T, int kD>
__global__ void __launch_bounds__(FwdShape<kD>::kThreads) attention_fwd_kernel(FwdArgs<T> a) {
  using S = FwdShape<kD>;
  DYN_SHARED(T, shared);
  constexpr int kKeyTile = S::kKeys * kTileStride<kD>;
  T *const q = shared, *const k = q + S::kRows * kTileStride<kD>, *const v = k + 2 * kKeyTile;
  const int q_row = warp_index() * 16 * S::kM;
  TileWalk<S::kRows, Heaviest::last> walk;
  for (Tile tile; walk.next(a.sequences, tile);) {
    const int64_t kv_at = tile.begin * a.ldkv + tile.head / a.group * kD;
    const int keys = lesser(tile.length, tile.first + S::kRows), n = (keys + S::kKeys - 1) / S::kKeys;
    const auto load_keys = [&](int i) {
      const int64_t at = kv_at + i * S::kKeys * a.ldkv;
      load_tile<S::kKeys, kD, S::kThreads>(k + i % 2 * kKeyTile, a.k + at, a.ldkv, keys - i * S::kKeys);
      load_tile<S::kKeys, kD, S::kThreads>(v + i % 2 * kKeyTile, a.v + at, a.ldkv, keys - i * S::kKeys);
      copy_async_commit();
    };
    __syncthreads();  // the last tile's readers are done
    load_tile<S::kRows, kD, S::kThreads>(q, a.q + tile.row(tile.first) * a.ldq + tile.head * kD, a.ldq,
                                         tile.length - tile.first);
    load_keys(0);
    FwdRows<kD> rows;
#pragma unroll
    for (int m = 0; m < S::kM; ++m)
#pragma unroll
      for (int i = 0; i < 2; ++i) rows.max[m][i] = -INFINITY, rows.sum[m][i] = 0;
    const int row = tile.first + q_row;  // of the sequence
    for (int i = 0; i < n; ++i) {
      copy_async_wait<0>();
      __syncthreads();  // this tile is there, and the one before is no longer read
      if (i + 1 < n) load_keys(i + 1);
      // A warp that has no rows, or only rows before these keys, has nothing to do.
      if (row < tile.length && i * S::kKeys < row + 16 * S::kM)
        fwd_step<T, kD>(rows, q, q_row, k + i % 2 * kKeyTile, v + i % 2 * kKeyTile, row - i * S::kKeys, a.scale);
    }
    if (row < tile.length) fwd_finish<T, kD>(a, rows, q, q_row, tile);
  }
}

template <class T, int kD>
void launch_fwd(const AttentionFwd& a, const AttentionStrides& ld, Stream s) {
  constexpr BlockNeeds kBlock{FwdShape<kD>::kThreads, kMostRegisters, FwdShape<kD>::kShared};
  const FwdArgs<T> args{
      as<T>(a.o),  a.lse,  as<T>(a.q), as<T>(a.k), as<T>(a.v), ld.o, ld.q, ld.kv, sequences_of(a, a.heads),
      group_of(a), a.scale};
  allow_shared(attention_fwd_kernel<T, kD>, kBlock.shared_bytes);
  LAUNCH((attention_fwd_kernel<T, kD>), walking_grid(kBlock), dim3(kBlock.threads), kBlock.shared_bytes, native(s),
         args);
}

}  // namespace

void attention_fwd(const AttentionFwd& a, Stream s) {
  if (a.n_seq == 0 || a.heads == 0) return;
  check_attention(a, "attention_fwd");
  const AttentionStrides ld(a);
  with_type(a.t, [&](auto element) {
    using T = decltype(element);
    if constexpr (!std::is_same_v<T, float>) {
      const bool in_pieces = takes_pieces(as<T>(a.q), ld.q) && takes_pieces(as<T>(a.k), ld.kv) &&
                             takes_pieces(as<T>(a.v), ld.kv) && takes_pieces(as<T>(a.o), ld.o);
      if (in_pieces && a.scale != 0 &&
          with_head_size(a.d, [&](auto d) { launch_fwd<T, decltype(d)::value>(a, ld, s); }))
        return;
    }
    plain_attention_fwd<T>(a, ld, s);
  });
}

}  // namespace rw::cuda
