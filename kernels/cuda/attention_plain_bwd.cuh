// The backward of attention_plain.cuh, and delta, which the kernels of tensor cores read too.
#pragma once
#include "kernels/cuda/attention_plain.cuh"
#include "kernels/device_sizes.h"

namespace rw::cuda {

// ---- delta: (rows, H), the sums over a head of d_o * o
// -------------------------------------------------------------------

inline float* delta_in(void* workspace) {
  return reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(workspace) + kDeltaAlignment - 1) &
                                  ~static_cast<uintptr_t>(kDeltaAlignment - 1));
}

struct DeltaShape {
  const int32_t* cu_seqlens;
  int64_t n_seq, heads, d, ld;
  bool in_pieces;
};

// A warp a row and head.
template <class T>
__global__ void delta_kernel(float* delta, const T* d_o, const T* o, DeltaShape a) {
  const int64_t first = a.cu_seqlens[0], n = (a.cu_seqlens[a.n_seq] - first) * a.heads;
  const int64_t warps = static_cast<int64_t>(gridDim.x) * blockDim.x / kWarp;
  for (int64_t i = global_index() / kWarp; i < n; i += warps) {
    const int64_t at = (first + i / a.heads) * a.ld + i % a.heads * a.d;
    float sum = 0;
    if (a.in_pieces) {
      for (int64_t c = lane_index() * Piece<T>::kSize; c < a.d; c += kWarp * Piece<T>::kSize) {
        const Piece<T> x = load_piece(d_o + at + c), y = load_piece(o + at + c);
#pragma unroll
        for (int j = 0; j < Piece<T>::kSize; ++j) sum = fmaf(to_float(x.x[j]), to_float(y.x[j]), sum);
      }
    } else {
      for (int64_t c = lane_index(); c < a.d; c += kWarp) sum = fmaf(to_float(d_o[at + c]), to_float(o[at + c]), sum);
    }
    sum = warp_reduce(sum, Sum{});
    if (lane_index() == 0) delta[i] = sum;
  }
}

template <class T>
void make_delta(const AttentionBwd& a, const AttentionStrides& ld, float* delta, Stream s) {
  const bool in_pieces =
      takes_pieces(as<T>(a.o), ld.o) && takes_pieces(as<T>(a.d_o), ld.o) && a.d % Piece<T>::kSize == 0;
  const BlockNeeds needs{256, 64, 0};
  LAUNCH(delta_kernel<T>, walking_grid(needs), dim3(256), 0, native(s), delta, as<T>(a.d_o), as<T>(a.o),
         DeltaShape{a.cu_seqlens, a.n_seq, a.heads, a.d, ld.o, in_pieces});
}

// ---- gradients
// -------------------------------------------------------------------------------------------------------

template <class T>
struct PlainBwd {
  T *d_q, *d_k, *d_v;
  const T *d_o, *q, *k, *v;
  const float *lse, *delta;
  int64_t ldo, ldq, ldkv;
  Sequences keys, queries;  // under the kv heads, under the heads
  int group;
  float scale;
  int d;
};

// Shared memory of both kernels: up to four tiles of 16 rows (two read, two of sums) and two of 32.
template <class T>
__global__ void __launch_bounds__(kPlainThreads) plain_bwd_keys_kernel(PlainBwd<T> a) {
  DYN_SHARED(float, shared);
  const int stride = plain_stride(a.d), row0 = warp_index() * kPlainWarpRows, tile_size = kPlainRows * stride;
  float *const k = shared, *const v = k + tile_size, *const d_k = v + tile_size, *const d_v = d_k + tile_size;
  float *const q = d_v + tile_size, *const d_o = q + kWarp * stride;
  float* const weights = d_o + kWarp * stride + row0 * kWarp;
  const int64_t first_row = a.keys.cu_seqlens[0];
  TileWalk<kPlainRows, Heaviest::first> walk;
  for (Tile tile; walk.next(a.keys, tile);) {
    const int64_t at = tile.row(tile.first) * a.ldkv + tile.head * a.d;
    const int keys = tile.length - tile.first, key = tile.first + row0;
    plain_load(k, kPlainRows, a.k + at, a.ldkv, keys, a.d);
    plain_load(v, kPlainRows, a.v + at, a.ldkv, keys, a.d);
    plain_zero(d_k, 2 * kPlainRows, a.d);
    for (int head = tile.head * a.group; head < (tile.head + 1) * a.group; ++head)
      for (int first = tile.first; first < tile.length; first += kWarp) {
        const int query = first + lane_index();
        const int64_t from = tile.row(first), row = tile.row(query);
        plain_load(q, kWarp, a.q + from * a.ldq + head * a.d, a.ldq, tile.length - first, a.d);
        plain_load(d_o, kWarp, a.d_o + from * a.ldo + head * a.d, a.ldo, tile.length - first, a.d);
        const bool there = query < tile.length;
        const float lse = there ? a.lse[row * a.queries.heads + head] : 0.F;
        const float delta = there ? a.delta[(row - first_row) * a.queries.heads + head] : 0.F;
        __syncthreads();
        float p[kPlainWarpRows], d_p[kPlainWarpRows];
        const float one[kPlainWarpRows] = {1, 1, 1, 1};
        plain_dots(p, k + row0 * stride, q + lane_index() * stride, a.d);
        plain_dots(d_p, v + row0 * stride, d_o + lane_index() * stride, a.d);
        for (int i = 0; i < kPlainWarpRows; ++i) p[i] = there && key + i <= query ? expf(p[i] * a.scale - lse) : 0.F;
        plain_add(d_v + row0 * stride, one, p, d_o, weights, a.d);
        for (int i = 0; i < kPlainWarpRows; ++i) p[i] *= d_p[i] - delta;
        plain_add(d_k + row0 * stride, one, p, q, weights, a.d);
        __syncthreads();
      }
    for (int i = 0; i < kPlainWarpRows && row0 + i < keys; ++i)
      for (int c = lane_index(); c < a.d; c += kWarp) {
        const int64_t to = at + (row0 + i) * a.ldkv + c;
        a.d_k[to] = from_float<T>(d_k[(row0 + i) * stride + c] * a.scale);
        a.d_v[to] = from_float<T>(d_v[(row0 + i) * stride + c]);
      }
    __syncthreads();
  }
}

template <class T>
__global__ void __launch_bounds__(kPlainThreads) plain_bwd_queries_kernel(PlainBwd<T> a) {
  DYN_SHARED(float, shared);
  const int stride = plain_stride(a.d), row0 = warp_index() * kPlainWarpRows, tile_size = kPlainRows * stride;
  float *const q = shared, *const d_o = q + tile_size, *const d_q = d_o + tile_size, *const k = d_q + tile_size;
  float *const v = k + kWarp * stride, *const weights = v + kWarp * stride + row0 * kWarp;
  const int64_t first_row = a.queries.cu_seqlens[0];
  TileWalk<kPlainRows, Heaviest::last> walk;
  for (Tile tile; walk.next(a.queries, tile);) {
    const int64_t at = tile.row(tile.first), kv_column = tile.head / a.group * a.d;
    const int queries = tile.length - tile.first, query = tile.first + row0;
    const int keys = lesser(tile.length, tile.first + kPlainRows);
    plain_load(q, kPlainRows, a.q + at * a.ldq + tile.head * a.d, a.ldq, queries, a.d);
    plain_load(d_o, kPlainRows, a.d_o + at * a.ldo + tile.head * a.d, a.ldo, queries, a.d);
    plain_zero(d_q, kPlainRows, a.d);
    float lse[kPlainWarpRows], delta[kPlainWarpRows];
    for (int i = 0; i < kPlainWarpRows; ++i) {
      const bool there = row0 + i < queries;
      const int64_t row = at + row0 + i;
      lse[i] = there ? a.lse[row * a.queries.heads + tile.head] : 0.F;
      delta[i] = there ? a.delta[(row - first_row) * a.queries.heads + tile.head] : 0.F;
    }
    for (int first = 0; first < keys; first += kWarp) {
      const int64_t from = tile.row(first) * a.ldkv + kv_column;
      plain_load(k, kWarp, a.k + from, a.ldkv, keys - first, a.d);
      plain_load(v, kWarp, a.v + from, a.ldkv, keys - first, a.d);
      __syncthreads();
      float p[kPlainWarpRows], d_p[kPlainWarpRows];
      const float one[kPlainWarpRows] = {1, 1, 1, 1};
      plain_dots(p, q + row0 * stride, k + lane_index() * stride, a.d);
      plain_dots(d_p, d_o + row0 * stride, v + lane_index() * stride, a.d);
      for (int i = 0; i < kPlainWarpRows; ++i)
        p[i] = first + lane_index() <= query + i ? expf(p[i] * a.scale - lse[i]) * (d_p[i] - delta[i]) : 0.F;
      plain_add(d_q + row0 * stride, one, p, k, weights, a.d);
      __syncthreads();
    }
    for (int i = 0; i < kPlainWarpRows && row0 + i < queries; ++i)
      for (int c = lane_index(); c < a.d; c += kWarp)
        a.d_q[(at + row0 + i) * a.ldq + tile.head * a.d + c] = from_float<T>(d_q[(row0 + i) * stride + c] * a.scale);
    __syncthreads();
  }
}

inline size_t plain_bwd_bytes(int64_t d) { return plain_bytes(4 * kPlainRows + 2 * kWarp, d); }

template <class T>
void plain_attention_bwd(const AttentionBwd& a, const AttentionStrides& ld, const float* delta, Stream s) {
  const size_t bytes = plain_bwd_bytes(a.d);
  const PlainBwd<T> args{.d_q = as<T>(a.d_q),
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
                         .scale = a.scale,
                         .d = static_cast<int>(a.d)};
  allow_shared(plain_bwd_keys_kernel<T>, bytes);
  LAUNCH(plain_bwd_keys_kernel<T>, walking_grid(plain_needs(bytes)), dim3(kPlainThreads), bytes, native(s), args);
  allow_shared(plain_bwd_queries_kernel<T>, bytes);
  LAUNCH(plain_bwd_queries_kernel<T>, walking_grid(plain_needs(bytes)), dim3(kPlainThreads), bytes, native(s), args);
}

}  // namespace rw::cuda
