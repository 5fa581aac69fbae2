// The backward of attention_bwd.cu on compute capability 9.0, by products of warpgroups: a warpgroup has 64 keys, or
// 64 queries, from scores to sums; both factors of scores, and the right ones of sums, are read from shared memory.
#include "kernels/cuda/attention_bwd_rows.cuh"
#include "kernels/cuda/attention_panels.cuh"
#include "kernels/cuda/table.h"

namespace rw::cuda {
namespace {

constexpr int kBlockThreads = 2 * kWarpgroup, kBlockRows = 128, kOtherRows = 64;

// Products (64, kColumns) of rows of two tiles of panels, along their kD columns; a group of its own.
template <class T, int kD, int kRows, int kColumns>
__device__ __forceinline__ void start_scores(WarpgroupProducts& products, FragmentC (&s)[kColumns / 8], const T* left,
                                             int left_row, const T* right) {
#pragma unroll
  for (int c = 0; c < kD; c += 16)
    products.add_columns<T, kColumns>(s, along_columns<kRows>(left, left_row, c), along_columns<kColumns>(right, 0, c),
                                      c == 0 ? Sums::begin : Sums::go_on);
  products.commit();
}
// sums (64, kD) += left (64, kK) right (kK, kD), a tile of panels; a group of its own.
template <class T, int kD, int kK>
__device__ __forceinline__ void start_sums(WarpgroupProducts& products, FragmentC (&sums)[kD / 8],
                                           const FragmentA (&left)[kK / 16], const T* right) {
#pragma unroll
  for (int k = 0; k < kK; k += 16)
    products.add_rows<T, kD>(sums, left[k / 16], along_rows<kK>(right, k, 0), Sums::go_on);
  products.commit();
}
template <class T, int kN>
__device__ __forceinline__ void round_factors(FragmentA (&a)[kN / 16], const FragmentC (&s)[kN / 8]) {
#pragma unroll
  for (int n = 0; n < kN / 16; ++n) a[n] = as_left_factor<T>(&s[2 * n]);
}

// ---- d_k and d_v
// -----------------------------------------------------------------------------------------------------

template <int kD>
struct KeyShape {
  static constexpr int kKeys = kBlockRows, kQueries = kOtherRows;
  static constexpr size_t kTiles = size_t{2} * kD * (2 * kKeys + 4 * kQueries);
  static constexpr size_t kShared = kTiles + 4 * kQueries * sizeof(float);
  static_assert(2 * tile_bytes<kD>(kKeys) <= kTiles && kShared <= kMostSharedBytes90);  // the sums go through there
};

// What a warp has of its 16 keys.
template <class T, int kD>
struct KeyRows {
  static constexpr int kQueries = KeyShape<kD>::kQueries;
  FragmentC d_k[kD / 8] = {}, d_v[kD / 8] = {};
  FragmentC p[kQueries / 8], d_p[kQueries / 8];
  FragmentA p_factors[kQueries / 16], d_s_factors[kQueries / 16];
  WarpgroupProducts products;

  // As key_step of the mma kernel. group_row: of the warpgroup in the tiles k and v.
  __device__ __forceinline__ void step(const T* k, const T* v, int group_row, const T* q, const T* d_o,
                                       const float* lse, const float* delta, int ahead, float scale_log2) {
    settle(p), settle(d_p), settle(d_k), settle(d_v);
    products.begin();
    start_scores<T, kD, kBlockRows, kQueries>(products, p, k, group_row, q);
    start_scores<T, kD, kBlockRows, kQueries>(products, d_p, v, group_row, d_o);
    products.wait<1>();
    settle(p);
    probabilities_of_keys<T, kQueries>(p, lse, ahead, scale_log2);
    round_factors<T, kQueries>(p_factors, p);
    settle(p_factors);
    products.begin();
    start_sums<T, kD, kQueries>(products, d_v, p_factors, d_o);
    products.wait<1>();
    settle(d_p);
    slopes_of_keys<T, kQueries>(p, d_p, delta);
    round_factors<T, kQueries>(d_s_factors, p);
    settle(d_s_factors);
    products.begin();
    start_sums<T, kD, kQueries>(products, d_k, d_s_factors, q);
    products.wait<0>();
    settle(d_k), settle(d_v);
    settle(p_factors), settle(d_s_factors);
  }
};

template <class T, int kD>
__global__ void __launch_bounds__(kBlockThreads, 1) attention_bwd_warpgroup_keys_kernel(BwdArgs<T> a) {
  using S = KeyShape<kD>;
  DYN_SHARED_1024(T, shared);
  constexpr int kKeyTile = S::kKeys * kD, kQueryTile = S::kQueries * kD;
  T *const k = shared, *const v = k + kKeyTile, *const q = v + kKeyTile, *const d_o = q + 2 * kQueryTile;
  float* const facts = reinterpret_cast<float*>(d_o + 2 * kQueryTile);
  const int group_row = warp_index() / 4 * 64, warp_row = warp_index() * 16;
  TileWalk<S::kKeys, Heaviest::first> walk;
  for (Tile tile; walk.next(a.keys, tile);) {
    const int keys = tile.length - tile.first;
    const int64_t kv_at = tile.row(tile.first) * a.ldkv + tile.head * kD;
    QueryTiles<T, S::kQueries> queries(a, tile, facts);
    const int n = queries.count();
    const auto load_queries = [&](int i) {
      load_panels<S::kQueries, kD, kBlockThreads>(q + i % 2 * kQueryTile, queries.q(i, kD), a.ldq, queries.there(i));
      load_panels<S::kQueries, kD, kBlockThreads>(d_o + i % 2 * kQueryTile, queries.d_o(i, kD), a.ldo,
                                                  queries.there(i));
      copy_async_commit();
    };
    __syncthreads();  // the last tile's readers are done
    load_panels<S::kKeys, kD, kBlockThreads>(k, a.k + kv_at, a.ldkv, keys);
    load_panels<S::kKeys, kD, kBlockThreads>(v, a.v + kv_at, a.ldkv, keys);
    load_queries(0);
    queries.read_facts(0);
    queries.put_facts(0);
    KeyRows<T, kD> rows;
    for (int i = 0; i < n; ++i) {
      copy_async_wait<0>();
      fence_shared_writes();
      __syncthreads();  // these queries are there, and those before are no longer read
      if (i + 1 < n) load_queries(i + 1), queries.read_facts(i + 1);
      const int ahead = queries.first(i) - tile.first, in = i % 2;
      if (group_row < keys && ahead - group_row + S::kQueries > 0)
        rows.step(k, v, group_row, q + in * kQueryTile, d_o + in * kQueryTile, queries.lse(i), queries.delta(i),
                  ahead - warp_row, a.scale * kLog2E);
      if (i + 1 < n) queries.put_facts(i + 1);
    }
    __syncthreads();  // no tile is read any more: the sums go through their room
    T* const d_v_rows = shared + S::kKeys * kTileStride<kD>;
    put_sums<kD, kD>(shared, warp_row, 0, rows.d_k, a.scale, a.scale);
    put_sums<kD, kD>(d_v_rows, warp_row, 0, rows.d_v, kLower<T>, kLower<T>);
    __syncwarp();
    const int64_t to = kv_at + warp_row * a.ldkv;
    store_rows<16, kD, kD>(a.d_k + to, a.ldkv, shared, warp_row, 0, keys - warp_row);
    store_rows<16, kD, kD>(a.d_v + to, a.ldkv, d_v_rows, warp_row, 0, keys - warp_row);
  }
}

// ---- d_q
// -------------------------------------------------------------------------------------------------------------

template <int kD>
struct QueryShape {
  static constexpr int kRows = kBlockRows, kKeys = kOtherRows;
  static constexpr size_t kShared = size_t{2} * kD * (2 * kRows + 4 * kKeys);
  static_assert(tile_bytes<kD>(kRows) <= size_t{2} * kD * 2 * kRows && kShared <= kMostSharedBytes90);
};

// What a warp has of its 16 queries.
template <class T, int kD>
struct QueryRows {
  static constexpr int kKeys = QueryShape<kD>::kKeys;
  FragmentC d_q[kD / 8] = {};
  FragmentC p[kKeys / 8], d_p[kKeys / 8];
  FragmentA d_s_factors[kKeys / 16];
  WarpgroupProducts products;

  __device__ __forceinline__ void step(const T* q, const T* d_o, int group_row, const T* k, const T* v,
                                       const float (&lse)[2], const float (&delta)[2], int ahead, float scale_log2) {
    settle(p), settle(d_p), settle(d_q);
    products.begin();
    start_scores<T, kD, kBlockRows, kKeys>(products, p, q, group_row, k);
    start_scores<T, kD, kBlockRows, kKeys>(products, d_p, d_o, group_row, v);
    products.wait<0>();
    settle(p), settle(d_p);
    slopes_of_queries<kKeys>(p, d_p, lse, delta, ahead, scale_log2);
    round_factors<T, kKeys>(d_s_factors, p);
    settle(d_s_factors);
    products.begin();
    start_sums<T, kD, kKeys>(products, d_q, d_s_factors, k);
    products.wait<0>();
    settle(d_q), settle(d_s_factors);
  }
};

template <class T, int kD>
__global__ void __launch_bounds__(kBlockThreads, 1) attention_bwd_warpgroup_queries_kernel(BwdArgs<T> a) {
  using S = QueryShape<kD>;
  DYN_SHARED_1024(T, shared);
  constexpr int kRowTile = S::kRows * kD, kKeyTile = S::kKeys * kD;
  T *const q = shared, *const d_o = q + kRowTile, *const k = d_o + kRowTile, *const v = k + 2 * kKeyTile;
  const int group_row = warp_index() / 4 * 64, warp_row = warp_index() * 16;
  TileWalk<S::kRows, Heaviest::last> walk;
  for (Tile tile; walk.next(a.queries, tile);) {
    const int64_t kv_at = tile.begin * a.ldkv + tile.head / a.group * kD, row0 = tile.row(tile.first);
    const int keys = lesser(tile.length, tile.first + S::kRows), n = (keys + S::kKeys - 1) / S::kKeys;
    const int queries = tile.length - tile.first;
    const auto load_keys = [&](int i) {
      const int64_t at = kv_at + i * S::kKeys * a.ldkv;
      load_panels<S::kKeys, kD, kBlockThreads>(k + i % 2 * kKeyTile, a.k + at, a.ldkv, keys - i * S::kKeys);
      load_panels<S::kKeys, kD, kBlockThreads>(v + i % 2 * kKeyTile, a.v + at, a.ldkv, keys - i * S::kKeys);
      copy_async_commit();
    };
    __syncthreads();  // the last tile's readers are done
    load_panels<S::kRows, kD, kBlockThreads>(q, a.q + row0 * a.ldq + tile.head * kD, a.ldq, queries);
    load_panels<S::kRows, kD, kBlockThreads>(d_o, a.d_o + row0 * a.ldo + tile.head * kD, a.ldo, queries);
    load_keys(0);
    float lse[2], delta[2];
    for (int i = 0; i < 2; ++i) {
      const int r = warp_row + lane_index() / 4 + 8 * i;
      const RowFacts facts = row_facts(a, row0 + r, tile.head, r < queries);
      lse[i] = facts.lse, delta[i] = facts.delta;
    }
    QueryRows<T, kD> rows;
    for (int i = 0; i < n; ++i) {
      copy_async_wait<0>();
      fence_shared_writes();
      __syncthreads();  // these keys are there, and those before are no longer read
      if (i + 1 < n) load_keys(i + 1);
      const int group_ahead = tile.first + group_row - i * S::kKeys;
      if (group_row < queries && group_ahead + 64 > 0)
        rows.step(q, d_o, group_row, k + i % 2 * kKeyTile, v + i % 2 * kKeyTile, lse, delta,
                  tile.first + warp_row - i * S::kKeys, a.scale * kLog2E);
    }
    __syncthreads();  // queries and d_o are no longer read
    put_sums<kD, kD>(shared, warp_row, 0, rows.d_q, a.scale, a.scale);
    __syncwarp();
    store_rows<16, kD, kD>(a.d_q + (row0 + warp_row) * a.ldq + tile.head * kD, a.ldq, shared, warp_row, 0,
                           queries - warp_row);
  }
}

template <class T, int kD>
void launch(const BwdArgs<T>& args, Stream s) {
  constexpr int kRegisters = most_registers(kBlockThreads);
  constexpr BlockNeeds kKeys{kBlockThreads, kRegisters, KeyShape<kD>::kShared};
  allow_shared(attention_bwd_warpgroup_keys_kernel<T, kD>, kKeys.shared_bytes, kMostSharedBytes90);
  LAUNCH((attention_bwd_warpgroup_keys_kernel<T, kD>), walking_grid(kKeys), dim3(kKeys.threads), kKeys.shared_bytes,
         native(s), args);
  constexpr BlockNeeds kQueries{kBlockThreads, kRegisters, QueryShape<kD>::kShared};
  allow_shared(attention_bwd_warpgroup_queries_kernel<T, kD>, kQueries.shared_bytes, kMostSharedBytes90);
  LAUNCH((attention_bwd_warpgroup_queries_kernel<T, kD>), walking_grid(kQueries), dim3(kQueries.threads),
         kQueries.shared_bytes, native(s), args);
}

}  // namespace

// Heads of 256: the sums of 64 keys have no room in the registers of a warpgroup.
template <class T>
bool warpgroup_attention_bwd(const BwdArgs<T>& args, int64_t d, Stream s) {
  if (!has_warpgroup_products()) return false;
  switch (d) {
    case 64: launch<T, 64>(args, s); return true;
    case 128: launch<T, 128>(args, s); return true;
    default: return false;
  }
}
template bool warpgroup_attention_bwd<bf16>(const BwdArgs<bf16>&, int64_t, Stream);
template bool warpgroup_attention_bwd<f16>(const BwdArgs<f16>&, int64_t, Stream);

}  // namespace rw::cuda
