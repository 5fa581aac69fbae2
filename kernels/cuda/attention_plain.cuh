// Attention for what tensor cores do not take: f32 (their products round to fewer bits), other head sizes, rows that do
// not begin at 16 bytes. A block has 16 rows, 4 a warp, and goes through the other side in tiles of 32, one a lane, all
// as f32 in shared memory; a lane's products serve the warp's 4 rows.
#pragma once
#include "kernels/cuda/attention_tiles.cuh"
#include "kernels/ops.h"

namespace rw::cuda {

// ---- of both directions and both kinds of kernel
// -------------------------------------------------------------------------

// Row strides of an op's arguments, where 0 stands for tight.
struct AttentionStrides {
  int64_t o, q, kv;
  template <class Args>
  explicit AttentionStrides(const Args& a)
      : o(a.ldo != 0 ? a.ldo : a.heads * a.d),
        q(a.ldq != 0 ? a.ldq : a.heads * a.d),
        kv(a.ldkv != 0 ? a.ldkv : a.kv_heads * a.d) {}
};

template <class Args>
Sequences sequences_of(const Args& a, int64_t heads) {
  return {a.cu_seqlens, static_cast<int>(a.n_seq), static_cast<int>(heads)};
}
// Query heads of a key/value head.
template <class Args>
int group_of(const Args& a) {
  return static_cast<int>(a.heads / a.kv_heads);
}
template <class Args>
void check_attention(const Args& a, const char* what) {
  CHECK(a.d > 0 && a.kv_heads > 0 && a.heads % a.kv_heads == 0,
        "%s: %lld heads over %lld kv heads of size %lld; heads must be a multiple of kv heads", what,
        static_cast<long long>(a.heads), static_cast<long long>(a.kv_heads), static_cast<long long>(a.d));
}

template <int n>
struct Size {
  static constexpr int value = n;
};
// f(Size<d>{}) for the head sizes that have kernels of tensor cores; false for others.
template <class F>
bool with_head_size(int64_t d, F&& f) {
  switch (d) {
    case 64: f(Size<64>{}); return true;
    case 80: f(Size<80>{}); return true;
    case 96: f(Size<96>{}); return true;
    case 128: f(Size<128>{}); return true;
    case 256: f(Size<256>{}); return true;
    default: return false;
  }
}

// ---- tiles
// -----------------------------------------------------------------------------------------------------------

constexpr int kPlainThreads = 128, kPlainWarpRows = 4, kPlainRows = kPlainWarpRows * kPlainThreads / kWarp;

// n rows of d elements as f32; zeros for those that are not there. An odd stride: lanes that read a column of 32 rows
// hit different banks.
__device__ __forceinline__ int plain_stride(int d) { return d | 1; }
template <class T>
__device__ __forceinline__ void plain_load(float* tile, int n, const T* from, int64_t ld, int rows, int d) {
  for (int i = static_cast<int>(threadIdx.x); i < n * d; i += kPlainThreads) {
    const int r = i / d, c = i % d;
    tile[r * plain_stride(d) + c] = r < rows ? to_float(from[r * ld + c]) : 0.F;
  }
}
// sum[i] = rows[i] . other, over d elements.
__device__ __forceinline__ void plain_dots(float (&sum)[kPlainWarpRows], const float* rows, const float* other, int d) {
  for (int i = 0; i < kPlainWarpRows; ++i) sum[i] = 0;
  for (int c = 0; c < d; ++c) {
    const float x = other[c];
    for (int i = 0; i < kPlainWarpRows; ++i) sum[i] = fmaf(rows[i * plain_stride(d) + c], x, sum[i]);
  }
}
// sums[i] = sums[i] * keep[i] + the 32 lanes' weight[i] * their row of the tile. `shared`: 4 * 32 of the warp's own.
__device__ __forceinline__ void plain_add(float* sums, const float (&keep)[kPlainWarpRows],
                                          const float (&weight)[kPlainWarpRows], const float* tile, float* shared,
                                          int d) {
  __syncwarp();
  for (int i = 0; i < kPlainWarpRows; ++i) shared[i * kWarp + lane_index()] = weight[i];
  __syncwarp();
  for (int c = lane_index(); c < d; c += kWarp) {
    float sum[kPlainWarpRows];
    for (int i = 0; i < kPlainWarpRows; ++i) sum[i] = sums[i * plain_stride(d) + c] * keep[i];
    for (int j = 0; j < kWarp; ++j) {
      const float x = tile[j * plain_stride(d) + c];
      for (int i = 0; i < kPlainWarpRows; ++i) sum[i] = fmaf(shared[i * kWarp + j], x, sum[i]);
    }
    for (int i = 0; i < kPlainWarpRows; ++i) sums[i * plain_stride(d) + c] = sum[i];
  }
}
// Shared memory for `rows` rows of d and the warps' weights.
inline size_t plain_bytes(int64_t rows, int64_t d) {
  return static_cast<size_t>(rows * (d | 1) + kPlainRows * kWarp) * sizeof(float);
}
inline BlockNeeds plain_needs(size_t bytes) { return {kPlainThreads, 80, bytes}; }
__device__ __forceinline__ void plain_zero(float* tile, int rows, int d) {
  for (int i = static_cast<int>(threadIdx.x); i < rows * plain_stride(d); i += kPlainThreads) tile[i] = 0;
}

// ---- forward
// ---------------------------------------------------------------------------------------------------------

template <class T>
struct PlainFwd {
  T* o;
  float* lse;
  const T *q, *k, *v;
  int64_t ldo, ldq, ldkv;
  Sequences sequences;
  int group;
  float scale;
  int d;
};

template <class T>
__global__ void __launch_bounds__(kPlainThreads) plain_fwd_kernel(PlainFwd<T> a) {
  DYN_SHARED(float, shared);
  const int stride = plain_stride(a.d), row0 = warp_index() * kPlainWarpRows;
  float *const q = shared, *const o = q + kPlainRows * stride, *const k = o + kPlainRows * stride;
  float *const v = k + kWarp * stride, *const weights = v + kWarp * stride + row0 * kWarp;
  TileWalk<kPlainRows, Heaviest::last> walk;
  for (Tile tile; walk.next(a.sequences, tile);) {
    const int64_t at = tile.row(tile.first), kv_column = tile.head / a.group * a.d;
    const int keys = lesser(tile.length, tile.first + kPlainRows), row = tile.first + row0;
    plain_load(q, kPlainRows, a.q + at * a.ldq + tile.head * a.d, a.ldq, tile.length - tile.first, a.d);
    plain_zero(o, kPlainRows, a.d);
    float max[kPlainWarpRows], sum[kPlainWarpRows];
    for (int i = 0; i < kPlainWarpRows; ++i) max[i] = -INFINITY, sum[i] = 0;
    for (int first = 0; first < keys; first += kWarp) {
      const int64_t key_at = tile.row(first);
      plain_load(k, kWarp, a.k + key_at * a.ldkv + kv_column, a.ldkv, keys - first, a.d);
      plain_load(v, kWarp, a.v + key_at * a.ldkv + kv_column, a.ldkv, keys - first, a.d);
      __syncthreads();
      float s[kPlainWarpRows], keep[kPlainWarpRows];
      plain_dots(s, q + row0 * stride, k + lane_index() * stride, a.d);
      for (int i = 0; i < kPlainWarpRows; ++i) {
        const bool counts = first + lane_index() <= row + i;
        s[i] *= a.scale;
        const float top = fmaxf(max[i], warp_reduce(counts ? s[i] : -INFINITY, Max{}));
        // A tile of keys that all come after the query (never the first) leaves everything as it was.
        keep[i] = top == max[i] ? 1.F : expf(max[i] - top);
        max[i] = top;
        s[i] = counts ? expf(s[i] - top) : 0.F;
        sum[i] = sum[i] * keep[i] + warp_reduce(s[i], Sum{});
      }
      plain_add(o + row0 * stride, keep, s, v, weights, a.d);
      __syncthreads();
    }
    for (int i = 0; i < kPlainWarpRows; ++i) {
      if (row + i >= tile.length) continue;
      const int64_t r = at + row0 + i;
      for (int c = lane_index(); c < a.d; c += kWarp)
        a.o[r * a.ldo + tile.head * a.d + c] = from_float<T>(o[(row0 + i) * stride + c] / sum[i]);
      if (lane_index() == 0) a.lse[r * a.sequences.heads + tile.head] = max[i] + logf(sum[i]);
    }
    __syncthreads();
  }
}

template <class T>
void plain_attention_fwd(const AttentionFwd& a, const AttentionStrides& ld, Stream s) {
  const size_t bytes = plain_bytes(2 * kPlainRows + 2 * kWarp, a.d);
  const PlainFwd<T> args{.o = as<T>(a.o),
                         .lse = a.lse,
                         .q = as<T>(a.q),
                         .k = as<T>(a.k),
                         .v = as<T>(a.v),
                         .ldo = ld.o,
                         .ldq = ld.q,
                         .ldkv = ld.kv,
                         .sequences = sequences_of(a, a.heads),
                         .group = group_of(a),
                         .scale = a.scale,
                         .d = static_cast<int>(a.d)};
  allow_shared(plain_fwd_kernel<T>, bytes);
  LAUNCH(plain_fwd_kernel<T>, walking_grid(plain_needs(bytes)), dim3(kPlainThreads), bytes, native(s), args);
}

}  // namespace rw::cuda
