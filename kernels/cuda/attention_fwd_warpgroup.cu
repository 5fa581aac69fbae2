// Blockwise attention, forward, on compute capability 9.0: scores and sums are products of a warpgroup, which read keys
// and values from shared memory themselves. While the sums of one tile of keys are made, so are the scores of the next
// (Shah et al. 2024, FlashAttention-3, algorithm 2); while one warpgroup has its softmax, another multiplies.
#include "kernels/cuda/attention_panels.cuh"
#include "kernels/cuda/attention_rows.cuh"
#include "kernels/cuda/table.h"

namespace rw::cuda {
namespace {

// A warpgroup has 64 queries. As many keys at a time as its registers have room for, beside sums of kD columns.
template <int kD>
struct WarpgroupShape {
  static constexpr int kGroups = kD == 64 ? 3 : 2, kThreads = kGroups * kWarpgroup, kRows = 64 * kGroups;
  static constexpr int kKeys = kD == 256 ? 64 : 128;
  // Queries, two tiles of keys, two of values. At the end the rows lie where queries and keys were.
  static constexpr size_t kShared = size_t{2} * kD * (kRows + 4 * kKeys);
  static_assert(tile_bytes<kD>(kRows) <= size_t{2} * kD * (kRows + 2 * kKeys) && kShared <= kMostSharedBytes90);
};

// What a warp has of its 16 rows.
template <class T, int kD>
struct WarpgroupRows {
  static constexpr int kKeys = WarpgroupShape<kD>::kKeys, kColumns = kD < 128 ? kD : 128;
  FragmentC o[kD / kColumns][kColumns / 8] = {};
  FragmentC s[kKeys / 8];
  FragmentA p[kKeys / 16];  // probabilities, as left factors
  SoftmaxRows soft;
  WarpgroupProducts products;

  __device__ __forceinline__ void start_scores(const T* q, int q_row, const T* k) {
#pragma unroll
    for (int c = 0; c < kD; c += 16)
      products.add_columns<T, kKeys>(s, along_columns<WarpgroupShape<kD>::kRows>(q, q_row, c),
                                     along_columns<kKeys>(k, 0, c), c == 0 ? Sums::begin : Sums::go_on);
    products.commit();
  }
  __device__ __forceinline__ void start_sums(const T* v) {
#pragma unroll
    for (int key = 0; key < kKeys; key += 16)
#pragma unroll
      for (int h = 0; h < kD / kColumns; ++h)
        products.add_rows<T, kColumns>(o[h], p[key / 16], along_rows<kKeys>(v, key, h * kColumns), Sums::go_on);
    products.commit();
  }
  __device__ __forceinline__ void settle_sums() {
#pragma unroll
    for (int h = 0; h < kD / kColumns; ++h) settle(o[h]);
    settle(p);
  }
  __device__ __forceinline__ void round_probabilities() {
#pragma unroll
    for (int n = 0; n < kKeys / 16; ++n) p[n] = as_left_factor<T>(&s[2 * n]);
  }

  // The first tile of keys; `ahead` = the warp's first row - the tile's first key.
  __device__ __forceinline__ void first(const T* q, int q_row, const T* k, int ahead, float scale) {
    float shrink[2];  // of nothing
    settle(s);
    products.begin();
    start_scores(q, q_row, k);
    products.wait<0>();
    settle(s);
    hide_later_keys<kKeys>(s, ahead, scale);
    soften<T, kKeys>(s, soft, scale, shrink);
    round_probabilities();
  }
  // Another one, beside the sums of the tile before.
  __device__ __forceinline__ void next(const T* q, int q_row, const T* k, const T* v_before, int ahead, float scale) {
    float shrink[2];
    settle(s);
    settle_sums();
    products.begin();
    start_scores(q, q_row, k);
    start_sums(v_before);
    products.wait<1>();
    settle(s);
    hide_later_keys<kKeys>(s, ahead, scale);
    soften<T, kKeys>(s, soft, scale, shrink);
    products.wait<0>();
    settle_sums();
#pragma unroll
    for (int h = 0; h < kD / kColumns; ++h) shrink_rows<kColumns>(o[h], shrink);
    round_probabilities();
  }
  __device__ __forceinline__ void last(const T* v_before) {
    settle_sums();
    products.begin();
    start_sums(v_before);
    products.wait<0>();
    settle_sums();
  }
};

template <class T, int kD>
__global__ void __launch_bounds__(WarpgroupShape<kD>::kThreads, 1) attention_fwd_warpgroup_kernel(FwdArgs<T> a) {
  using S = WarpgroupShape<kD>;
  using Rows = WarpgroupRows<T, kD>;
  DYN_SHARED_1024(T, shared);
  constexpr int kKeyTile = S::kKeys * kD;
  T *const q = shared, *const k = q + S::kRows * kD, *const v = k + 2 * kKeyTile;
  const int group_row = warp_index() / 4 * 64, warp_row = warp_index() * 16;
  TileWalk<S::kRows, Heaviest::last> walk;
  for (Tile tile; walk.next(a.sequences, tile);) {
    const int64_t kv_at = tile.begin * a.ldkv + tile.head / a.group * kD;
    const int keys = lesser(tile.length, tile.first + S::kRows), n = (keys + S::kKeys - 1) / S::kKeys;
    const auto load_keys = [&](int i) {
      load_panels<S::kKeys, kD, S::kThreads>(k + i % 2 * kKeyTile, a.k + kv_at + i * S::kKeys * a.ldkv, a.ldkv,
                                             keys - i * S::kKeys);
    };
    // Of this warpgroup: tiles of keys up to its last query; none where it has no query.
    const int row = tile.first + group_row;
    const int mine = row < tile.length ? (lesser(keys, row + 64) + S::kKeys - 1) / S::kKeys : 0;
    __syncthreads();  // the last tile's readers are done
    load_panels<S::kRows, kD, S::kThreads>(q, a.q + tile.row(tile.first) * a.ldq + tile.head * kD, a.ldq,
                                           tile.length - tile.first);
    load_keys(0);
    copy_async_commit();
    Rows rows;
    for (int i = 0; i <= n; ++i) {
      copy_async_wait<0>();
      fence_shared_writes();
      __syncthreads();  // keys i and values i - 1 are there, and those before are no longer read
      if (i < n) {
        if (i + 1 < n) load_keys(i + 1);
        load_panels<S::kKeys, kD, S::kThreads>(v + i % 2 * kKeyTile, a.v + kv_at + i * S::kKeys * a.ldkv, a.ldkv,
                                               keys - i * S::kKeys);
        copy_async_commit();
      }
      const int ahead = tile.first + warp_row - i * S::kKeys;
      const T *const k_now = k + i % 2 * kKeyTile, *const v_before = v + (i + 1) % 2 * kKeyTile;
      if (i == 0 && mine > 0) rows.first(q, group_row, k_now, ahead, a.scale);
      if (i > 0 && i < mine) rows.next(q, group_row, k_now, v_before, ahead, a.scale);
      if (i > 0 && i == mine) rows.last(v_before);
    }
    // Since the last barrier nobody reads queries or keys.
    if (tile.first + warp_row < tile.length) {
      FragmentC o[1][kD / 8];
#pragma unroll
      for (int j = 0; j < kD / 8; ++j) o[0][j] = rows.o[j * 8 / Rows::kColumns][j % (Rows::kColumns / 8)];
      const SoftmaxRows soft[1] = {rows.soft};
      finish_rows<T, kD>(a, o, soft, shared, warp_row, tile);
    }
  }
}

template <class T, int kD>
void launch(const FwdArgs<T>& args, Stream s) {
  using S = WarpgroupShape<kD>;
  constexpr BlockNeeds kBlock{S::kThreads, most_registers(S::kThreads), S::kShared};
  allow_shared(attention_fwd_warpgroup_kernel<T, kD>, kBlock.shared_bytes, kMostSharedBytes90);
  LAUNCH((attention_fwd_warpgroup_kernel<T, kD>), walking_grid(kBlock), dim3(kBlock.threads), kBlock.shared_bytes,
         native(s), args);
}

}  // namespace

template <class T>
bool warpgroup_attention_fwd(const FwdArgs<T>& args, int64_t d, Stream s) {
  if (!has_warpgroup_products()) return false;
  switch (d) {
    case 64: launch<T, 64>(args, s); return true;
    case 128: launch<T, 128>(args, s); return true;
    case 256: launch<T, 256>(args, s); return true;
    default: return false;
  }
}
template bool warpgroup_attention_fwd<bf16>(const FwdArgs<bf16>&, int64_t, Stream);
template bool warpgroup_attention_fwd<f16>(const FwdArgs<f16>&, int64_t, Stream);

}  // namespace rw::cuda
