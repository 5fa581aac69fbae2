// Blockwise attention, forward: a block has a tile of queries and goes through the keys up to them, with the softmax
// made as it goes (Milakov & Gimelshein 2018; Dao 2023, algorithm 1). A warp has rows of its own from scores to sums,
// so that probabilities stay in registers.
#include "kernels/cuda/attention_rows.cuh"
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

// What a warp has of its rows, in pieces of 16.
template <int kD>
struct FwdRows {
  static constexpr int kM = FwdShape<kD>::kM;
  FragmentC o[kM][kD / 8] = {};
  SoftmaxRows soft[kM];
};

// One tile of keys: `ahead` = the warp's first row - the tile's first key.
template <class T, int kD>
__device__ __forceinline__ void fwd_step(FwdRows<kD>& rows, const T* q, int q_row, const T* k, const T* v, int ahead,
                                         float scale) {
  using S = FwdShape<kD>;
  FragmentC s[S::kM][S::kKeys / 8] = {};
  add_times_rows<kD, S::kM, S::kKeys>(s, q, q_row, k);
#pragma unroll
  for (int m = 0; m < S::kM; ++m) {
    float shrink[2];
    hide_later_keys<S::kKeys>(s[m], ahead + 16 * m, scale);
    soften<T, S::kKeys>(s[m], rows.soft[m], scale, shrink);
    shrink_rows<kD>(rows.o[m], shrink);
  }
  add_times_columns<kD, S::kM, S::kKeys, kD>(rows.o, s, v, 0);
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
    const int row = tile.first + q_row;  // of the sequence
    for (int i = 0; i < n; ++i) {
      copy_async_wait<0>();
      __syncthreads();  // this tile is there, and the one before is no longer read
      if (i + 1 < n) load_keys(i + 1);
      // A warp that has no rows, or only rows before these keys, has nothing to do.
      if (row < tile.length && i * S::kKeys < row + 16 * S::kM)
        fwd_step<T, kD>(rows, q, q_row, k + i % 2 * kKeyTile, v + i % 2 * kKeyTile, row - i * S::kKeys, a.scale);
    }
    if (row < tile.length) finish_rows<T, kD>(a, rows.o, rows.soft, q, q_row, tile);
  }
}

template <class T, int kD>
void launch_fwd(const AttentionFwd& a, const AttentionStrides& ld, Stream s) {
  constexpr BlockNeeds kBlock{FwdShape<kD>::kThreads, kMostRegisters, FwdShape<kD>::kShared};
  allow_shared(attention_fwd_kernel<T, kD>, kBlock.shared_bytes);
  LAUNCH((attention_fwd_kernel<T, kD>), walking_grid(kBlock), dim3(kBlock.threads), kBlock.shared_bytes, native(s),
         fwd_args<T>(a, ld));
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
      if (in_pieces && a.scale != 0 && warpgroup_attention_fwd(fwd_args<T>(a, ld), a.d, s)) return;
      if (in_pieces && a.scale != 0 &&
          with_head_size(a.d, [&](auto d) { launch_fwd<T, decltype(d)::value>(a, ld, s); }))
        return;
    }
    plain_attention_fwd<T>(a, ld, s);
  });
}

}  // namespace rw::cuda
