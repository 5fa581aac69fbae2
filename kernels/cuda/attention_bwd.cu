// Blockwise attention, backward (Dao 2023, algorithm 2), without sums of floats by atomics: one kernel has tiles of
// keys and goes through the queries for d_k and d_v, another has tiles of queries and goes through the keys for d_q;
// both make the probabilities anew from the forward's lse. With P the probabilities and delta = the row sums of d_o *
// o:
//   d_v = P^T d_o,  d_s = P * (d_o v^T - delta),  d_q = scale d_s k,  d_k = scale d_s^T q.
#include "kernels/cuda/attention_bwd_rows.cuh"
#include "kernels/cuda/table.h"
#include "kernels/device_sizes.h"

namespace rw::cuda {
namespace {

// ---- d_k and d_v
// -----------------------------------------------------------------------------------------------------

// A warp has 16 keys and the columns of d_k and d_v that fit in registers: where there are more, two warps make the
// same scores for half of the columns each.
template <int kD>
struct KeyShape {
  static constexpr int kHalves = kD > 128 ? 2 : 1, kColumns = kD / kHalves;
  static constexpr int kThreads = 4 * kHalves * kWarp, kKeys = 64, kQueries = kD <= 64 ? 64 : 32;
  static constexpr size_t kTiles = tile_bytes<kD>(2 * kKeys + 4 * kQueries);
  static constexpr size_t kShared = kTiles + 4 * kQueries * sizeof(float);
};

// Keys against one tile of queries, transposed: rows are keys. `ahead` = the tile's first query - the warp's first key.
template <class T, int kD>
__device__ __forceinline__ void key_step(FragmentC (&d_k)[1][KeyShape<kD>::kColumns / 8],
                                         FragmentC (&d_v)[1][KeyShape<kD>::kColumns / 8], const T* k, const T* v,
                                         int key_row, int column, const T* q, const T* d_o, const float* lse,
                                         const float* delta, int ahead, float scale_log2) {
  using S = KeyShape<kD>;
  FragmentC p[1][S::kQueries / 8] = {};
  add_times_rows<kD, 1, S::kQueries>(p, k, key_row, q);
  probabilities_of_keys<T, S::kQueries>(p[0], lse, ahead, scale_log2);
  add_times_columns<kD, 1, S::kQueries, S::kColumns>(d_v, p, d_o, column);
  FragmentC d_p[1][S::kQueries / 8] = {};
  add_times_rows<kD, 1, S::kQueries>(d_p, v, key_row, d_o);
  slopes_of_keys<T, S::kQueries>(p[0], d_p[0], delta);
  add_times_columns<kD, 1, S::kQueries, S::kColumns>(d_k, p, q, column);
}

template <class T, int kD>
__global__ void __launch_bounds__(KeyShape<kD>::kThreads) attention_bwd_keys_kernel(BwdArgs<T> a) {
  using S = KeyShape<kD>;
  DYN_SHARED(T, shared);
  constexpr int kStride = kTileStride<kD>, kQueryTile = S::kQueries * kStride;
  T *const k = shared, *const v = k + S::kKeys * kStride, *const q = v + S::kKeys * kStride;
  T* const d_o = q + 2 * kQueryTile;
  float* const facts = reinterpret_cast<float*>(d_o + 2 * kQueryTile);
  const int key_row = warp_index() % 4 * 16, column = warp_index() / 4 * S::kColumns;
  const float scale_log2 = a.scale * kLog2E;
  TileWalk<S::kKeys, Heaviest::first> walk;
  for (Tile tile; walk.next(a.keys, tile);) {
    const int keys = tile.length - tile.first, key = tile.first + key_row;
    const int64_t kv_at = tile.row(tile.first) * a.ldkv + tile.head * kD;
    QueryTiles<T, S::kQueries> queries(a, tile, facts);
    const int n = queries.count();
    const auto load_queries = [&](int i) {
      load_tile<S::kQueries, kD, S::kThreads>(q + i % 2 * kQueryTile, queries.q(i, kD), a.ldq, queries.there(i));
      load_tile<S::kQueries, kD, S::kThreads>(d_o + i % 2 * kQueryTile, queries.d_o(i, kD), a.ldo, queries.there(i));
      copy_async_commit();
    };
    __syncthreads();  // the last tile's readers are done
    load_tile<S::kKeys, kD, S::kThreads>(k, a.k + kv_at, a.ldkv, keys);
    load_tile<S::kKeys, kD, S::kThreads>(v, a.v + kv_at, a.ldkv, keys);
    load_queries(0);
    queries.read_facts(0);
    queries.put_facts(0);
    FragmentC d_k[1][S::kColumns / 8] = {}, d_v[1][S::kColumns / 8] = {};
    for (int i = 0; i < n; ++i) {
      copy_async_wait<0>();
      __syncthreads();  // these queries are there, and those before are no longer read
      if (i + 1 < n) load_queries(i + 1), queries.read_facts(i + 1);
      const int ahead = queries.first(i) - key, in = i % 2;
      if (key < tile.length && ahead + S::kQueries > 0)
        key_step<T, kD>(d_k, d_v, k, v, key_row, column, q + in * kQueryTile, d_o + in * kQueryTile, queries.lse(i),
                        queries.delta(i), ahead, scale_log2);
      if (i + 1 < n) queries.put_facts(i + 1);
    }
    __syncthreads();  // k and v are no longer read: the sums go through their rows
    put_sums<kD, S::kColumns>(k, key_row, column, d_k[0], a.scale, a.scale);
    put_sums<kD, S::kColumns>(v, key_row, column, d_v[0], kLower<T>, kLower<T>);
    __syncwarp();
    const int64_t to = kv_at + key_row * a.ldkv;
    store_rows<16, kD, S::kColumns>(a.d_k + to, a.ldkv, k, key_row, column, keys - key_row);
    store_rows<16, kD, S::kColumns>(a.d_v + to, a.ldkv, v, key_row, column, keys - key_row);
  }
}

// ---- d_q
// -------------------------------------------------------------------------------------------------------------

template <int kD>
struct QueryShape {
  static constexpr int kThreads = 128, kRows = 64, kKeys = kD <= 128 ? 64 : 32;
  static constexpr size_t kShared = tile_bytes<kD>(2 * kRows + 4 * kKeys);
};

// `ahead` = the warp's first query - the tile's first key.
template <class T, int kD>
__device__ __forceinline__ void query_step(FragmentC (&d_q)[1][kD / 8], const T* q, const T* d_o, int q_row, const T* k,
                                           const T* v, const float (&lse)[2], const float (&delta)[2], int ahead,
                                           float scale_log2) {
  using S = QueryShape<kD>;
  FragmentC p[1][S::kKeys / 8] = {}, d_p[1][S::kKeys / 8] = {};
  add_times_rows<kD, 1, S::kKeys>(p, q, q_row, k);
  add_times_rows<kD, 1, S::kKeys>(d_p, d_o, q_row, v);
  slopes_of_queries<S::kKeys>(p[0], d_p[0], lse, delta, ahead, scale_log2);
  add_times_columns<kD, 1, S::kKeys, kD>(d_q, p, k, 0);
}

template <class T, int kD>
__global__ void __launch_bounds__(QueryShape<kD>::kThreads, 2) attention_bwd_queries_kernel(BwdArgs<T> a) {
  using S = QueryShape<kD>;
  DYN_SHARED(T, shared);
  constexpr int kStride = kTileStride<kD>, kKeyTile = S::kKeys * kStride;
  T *const q = shared, *const d_o = q + S::kRows * kStride, *const k = d_o + S::kRows * kStride;
  T* const v = k + 2 * kKeyTile;
  const int q_row = warp_index() * 16;
  TileWalk<S::kRows, Heaviest::last> walk;
  for (Tile tile; walk.next(a.queries, tile);) {
    const int64_t kv_at = tile.begin * a.ldkv + tile.head / a.group * kD, row0 = tile.row(tile.first);
    const int keys = lesser(tile.length, tile.first + S::kRows), n = (keys + S::kKeys - 1) / S::kKeys;
    const int queries = tile.length - tile.first, query = tile.first + q_row;
    const auto load_keys = [&](int i) {
      const int64_t at = kv_at + i * S::kKeys * a.ldkv;
      load_tile<S::kKeys, kD, S::kThreads>(k + i % 2 * kKeyTile, a.k + at, a.ldkv, keys - i * S::kKeys);
      load_tile<S::kKeys, kD, S::kThreads>(v + i % 2 * kKeyTile, a.v + at, a.ldkv, keys - i * S::kKeys);
      copy_async_commit();
    };
    __syncthreads();  // the last tile's readers are done
    load_tile<S::kRows, kD, S::kThreads>(q, a.q + row0 * a.ldq + tile.head * kD, a.ldq, queries);
    load_tile<S::kRows, kD, S::kThreads>(d_o, a.d_o + row0 * a.ldo + tile.head * kD, a.ldo, queries);
    load_keys(0);
    float lse[2], delta[2];
    for (int i = 0; i < 2; ++i) {
      const int r = q_row + lane_index() / 4 + 8 * i;
      const RowFacts facts = row_facts(a, row0 + r, tile.head, r < queries);
      lse[i] = facts.lse, delta[i] = facts.delta;
    }
    FragmentC d_q[1][kD / 8] = {};
    for (int i = 0; i < n; ++i) {
      copy_async_wait<0>();
      __syncthreads();  // these keys are there, and those before are no longer read
      if (i + 1 < n) load_keys(i + 1);
      if (query < tile.length && i * S::kKeys < query + 16)
        query_step<T, kD>(d_q, q, d_o, q_row, k + i % 2 * kKeyTile, v + i % 2 * kKeyTile, lse, delta,
                          query - i * S::kKeys, a.scale * kLog2E);
    }
    __syncwarp();
    put_sums<kD, kD>(q, q_row, 0, d_q[0], a.scale, a.scale);
    __syncwarp();
    store_rows<16, kD, kD>(a.d_q + (row0 + q_row) * a.ldq + tile.head * kD, a.ldq, q, q_row, 0, queries - q_row);
  }
}

template <class T, int kD>
void launch_bwd(const BwdArgs<T>& args, Stream s) {
  constexpr BlockNeeds kKeys{KeyShape<kD>::kThreads, kMostRegisters, KeyShape<kD>::kShared};
  allow_shared(attention_bwd_keys_kernel<T, kD>, kKeys.shared_bytes);
  LAUNCH((attention_bwd_keys_kernel<T, kD>), walking_grid(kKeys), dim3(kKeys.threads), kKeys.shared_bytes, native(s),
         args);
  constexpr BlockNeeds kQueries{QueryShape<kD>::kThreads, kMostRegisters, QueryShape<kD>::kShared};
  allow_shared(attention_bwd_queries_kernel<T, kD>, kQueries.shared_bytes);
  LAUNCH((attention_bwd_queries_kernel<T, kD>), walking_grid(kQueries), dim3(kQueries.threads), kQueries.shared_bytes,
         native(s), args);
}

template <class T>
bool bwd_by_tensor_cores(const AttentionBwd& a, const AttentionStrides& ld, const float* delta, Stream s) {
  for (const void* p : {a.q, static_cast<const void*>(a.d_q)})
    if (!takes_pieces(as<T>(p), ld.q)) return false;
  for (const void* p : {a.k, a.v, static_cast<const void*>(a.d_k), static_cast<const void*>(a.d_v)})
    if (!takes_pieces(as<T>(p), ld.kv)) return false;
  if (!takes_pieces(as<T>(a.d_o), ld.o)) return false;
  const BwdArgs<T> args{.d_q = as<T>(a.d_q),
                        .d_k = as<T>(a.d_k),
                        .d_v = as<T>(a.d_v),
                        .d_o = as<T>(a.d_o),
                        .q = as<T>(a.q),
                        .k = as<T>(a.k),
                        .v = as<T>(a.v),
                        .lse = a.lse,
                        .delta = delta,
                        .ldo = ld.o,
                        .ldq = ld.q,
                        .ldkv = ld.kv,
                        .keys = sequences_of(a, a.kv_heads),
                        .queries = sequences_of(a, a.heads),
                        .group = group_of(a),
                        .scale = a.scale};
  return warpgroup_attention_bwd(args, a.d, s) ||
         with_head_size(a.d, [&](auto d) { launch_bwd<T, decltype(d)::value>(args, s); });
}

}  // namespace

int64_t attention_workspace(const AttentionBwd& a, Stream) { return device_attention_workspace(a); }

int64_t most_attention_head_size() {
  int64_t d = 256;
  while (plain_bwd_bytes(d + 1) <= kMostSharedBytes) ++d;
  return d;
}

void attention_bwd(const AttentionBwd& a, Stream s) {
  if (a.n_seq == 0 || a.heads == 0) return;
  check_attention(a, "attention_bwd");
  CHECK(a.workspace != nullptr, "attention_bwd: no workspace");
  const AttentionStrides ld(a);
  with_type(a.t, [&](auto element) {
    using T = decltype(element);
    float* const delta = delta_in(a.workspace);
    make_delta<T>(a, ld, delta, s);
    if constexpr (!std::is_same_v<T, float>)
      if (bwd_by_tensor_cores<T>(a, ld, delta, s)) return;
    plain_attention_bwd<T>(a, ld, delta, s);
  });
}

}  // namespace rw::cuda
