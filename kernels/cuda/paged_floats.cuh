// Rows of queries through their keys in float arithmetic: any types, any head size. Keys and values come into shared
// memory as f32 in blocks; a warp has a row's scores, a lane a key; then a thread has a column of o.
#pragma once
#include "kernels/cuda/paged_kernels.cuh"

namespace rw::cuda {

__device__ __forceinline__ float to_float(int8_t x) { return static_cast<float>(x); }

template <class Kv, int kRowsAtOnce>
class FloatRows {
 public:
  static constexpr int kRows = kRowsAtOnce;
  static constexpr int64_t kWidest = 256;  // head size up to which 32 rows have room

  // Of q, o and the totals; of keys and values, whose rows begin in different banks.
  static __host__ __device__ int stride(int64_t d) { return static_cast<int>(d) | 1; }
  // Taken at once: as many as a block has room for.
  static __host__ __device__ int keys(int64_t d) {
    int n = kMostKeys;
    while (n > 1 && bytes_with(n, d) > kMostSharedBytes) n /= 2;
    return n;
  }
  static size_t shared_bytes(const PagedWork& a) { return bytes_with(keys(a.d), a.d); }

  __device__ FloatRows(const PagedWork& work, unsigned char* shared)
      : a_(work), d_(work.d), stride_(stride(work.d)), keys_(keys(work.d)) {
    places_ = reinterpret_cast<int64_t*>(shared);
    q_ = reinterpret_cast<float*>(places_ + kMostKeys);
    o_ = q_ + kRows * d_;
    total_ = o_ + kRows * d_;
    p_ = total_ + kRows * (d_ + 2);
    max_ = p_ + kRows * kMostKeys;
    sum_ = max_ + kRows;
    shrink_ = sum_ + kRows;
    k_scale_ = shrink_ + kRows;
    v_scale_ = k_scale_ + kMostKeys;
    k_ = v_scale_ + kMostKeys;
    v_ = k_ + keys_ * stride_;
  }

  __device__ void load(const RowTile& t) {
    for (int i = thread(); i < t.rows * d_; i += kPagedThreads)
      q_[i] = load_as(a_.q, a_.t, row_offset(a_, t, i / d_, a_.ldq) + i % d_);
    __syncthreads();
  }

  __device__ void through(const RowTile& t, int64_t from, int64_t to) {
    for (int i = thread(); i < t.rows * d_; i += kPagedThreads) o_[i] = 0;
    for (int r = thread(); r < t.rows; r += kPagedThreads) max_[r] = -INFINITY;
    float sums[kRows / kPagedWarps] = {};  // of this lane's keys, for this warp's rows
    for (int64_t key = from; key < to; key += keys_) {
      const int n = static_cast<int>(smaller(keys_, to - key));
      fetch(t, key, n);
      score(t, key, n, sums);
      __syncthreads();
      add_values(t, n);
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < kRows / kPagedWarps; ++i) {
      const float sum = warp_reduce(sums[i], Sum{});
      if (lane() == 0) sum_[i * kPagedWarps + warp()] = sum;
    }
    __syncthreads();
  }

  __device__ Softmax softmax(int row) const { return {max_[row], sum_[row]}; }
  __device__ float value(int row, int c) const { return o_[row * d_ + c]; }
  __device__ float* totals() { return total_; }

  __device__ void finish(const RowTile& t) {
    for (int i = thread(); i < t.rows * d_; i += kPagedThreads)
      store_as(a_.o, a_.t, row_offset(a_, t, i / d_, a_.ldo) + i % d_, o_[i] / sum_[i / d_]);
    __syncthreads();
  }

 private:
  static constexpr int kMostKeys = kWarp;
  static constexpr bool kScaled = sizeof(Kv) == 1;
  static __host__ __device__ size_t bytes_with(int keys, int64_t d) {
    const int64_t rows = kRows * (3 * d + 2 + kMostKeys + 3);
    return static_cast<size_t>(8 * kMostKeys + 4 * (rows + 2 * kMostKeys + 2 * keys * stride(d)));
  }
  static __device__ int thread() { return static_cast<int>(threadIdx.x); }
  static __device__ int warp() { return thread() / kWarp; }
  static __device__ int lane() { return thread() % kWarp; }

  // Keys and values of n positions. Ends with a barrier.
  __device__ void fetch(const RowTile& t, int64_t key, int n) {
    for (int j = thread(); j < n; j += kPagedThreads) {
      const int64_t at = place_of(a_, t.s, key + j) * a_.kv_heads + t.kv_head;
      places_[j] = at * d_;
      if (kScaled) {
        k_scale_[j] = a_.k_scales[at];
        v_scale_[j] = a_.v_scales[at];
      }
    }
    __syncthreads();
    const Kv *k = static_cast<const Kv*>(a_.k), *v = static_cast<const Kv*>(a_.v);
    if (a_.pieces) {
      constexpr int kPiece = Piece<Kv>::kSize;
      const int pieces = d_ / kPiece;
      for (int i = thread(); i < n * pieces; i += kPagedThreads) {
        const int j = i / pieces, c = i % pieces * kPiece;
        const Piece<Kv> x = load_piece(k + places_[j] + c), y = load_piece(v + places_[j] + c);
#pragma unroll
        for (int e = 0; e < kPiece; ++e) {
          k_[j * stride_ + c + e] = to_float(x.x[e]);
          v_[j * stride_ + c + e] = to_float(y.x[e]);
        }
      }
    } else {
      for (int i = thread(); i < n * d_; i += kPagedThreads) {
        const int j = i / d_, c = i % d_;
        k_[j * stride_ + c] = to_float(k[places_[j] + c]);
        v_[j * stride_ + c] = to_float(v[places_[j] + c]);
      }
    }
    __syncthreads();
  }

  // Probabilities of this warp's rows, by how much their sums so far shrink (online softmax, Milakov & Gimelshein
  // 2018).
  __device__ void score(const RowTile& t, int64_t key, int n, float (&sums)[kRows / kPagedWarps]) {
    constexpr int kMine = kRows / kPagedWarps;
    float s[kMine] = {};
    const float* k = k_ + smaller(lane(), n - 1) * stride_;
    for (int c = 0; c < d_; ++c) {
#pragma unroll
      for (int i = 0; i < kMine; ++i)
        if (i * kPagedWarps + warp() < t.rows) s[i] = fmaf(q_[(i * kPagedWarps + warp()) * d_ + c], k[c], s[i]);
    }
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      const int row = i * kPagedWarps + warp();
      if (row >= t.rows) break;  // the whole warp
      float x = s[i] * a_.scale_log2;
      if (kScaled) x *= k_scale_[smaller(lane(), n - 1)];
      if (lane() >= n || key + lane() > last_position(a_, t, row)) x = -INFINITY;
      const float before = max_[row], max = fmaxf(before, warp_reduce(x, Max{}));
      const float base = max == -INFINITY ? 0.F : max, p = exp2_fast(x - base), shrink = exp2_fast(before - base);
      sums[i] = sums[i] * shrink + p;
      if (lane() < n) p_[row * kMostKeys + lane()] = kScaled ? p * v_scale_[lane()] : p;
      __syncwarp();  // all have read the row's maximum
      if (lane() == 0) {
        max_[row] = max;
        shrink_[row] = shrink;
      }
    }
  }

  __device__ void add_values(const RowTile& t, int n) {
    for (int c = thread(); c < d_; c += kPagedThreads) {
      float sums[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) sums[r] = r < t.rows ? o_[r * d_ + c] * shrink_[r] : 0.F;
      for (int j = 0; j < n; ++j) {
        const float v = v_[j * stride_ + c];
#pragma unroll
        for (int r = 0; r < kRows; ++r)
          if (r < t.rows) sums[r] = fmaf(p_[r * kMostKeys + j], v, sums[r]);
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r)
        if (r < t.rows) o_[r * d_ + c] = sums[r];
    }
  }

  const PagedWork& a_;
  int d_, stride_, keys_;
  int64_t* places_;
  float *q_, *o_, *total_, *p_, *max_, *sum_, *shrink_, *k_scale_, *v_scale_, *k_, *v_;
};

}  // namespace rw::cuda
