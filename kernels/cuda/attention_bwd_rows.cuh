// Probabilities and their slopes in the backward of attention, as a warp has them: rows are 16 keys in the kernels for
// d_k and d_v, 16 queries in those for d_q.
#pragma once
#include "kernels/cuda/attention_plain_bwd.cuh"
#include "kernels/cuda/attention_tiles.cuh"

namespace rw::cuda {

template <class T>
struct BwdArgs {
  T *d_q, *d_k, *d_v;
  const T *d_o, *q, *k, *v;
  const float *lse, *delta;  // (T,H); delta begins at the first sequence's first row
  int64_t ldo, ldq, ldkv;
  Sequences keys, queries;  // under the kv heads, under the heads
  int group;
  float scale;
};

// By warpgroup products, for operands that come in pieces of 16 bytes; false where this head size or this device has
// none.
template <class T>
bool warpgroup_attention_bwd(const BwdArgs<T>& args, int64_t d, Stream s);

// Scores of 16 keys against kN queries to probabilities, times 2^kRaise. lse: base 2, of the queries; `ahead` = the
// first query - the first key.
template <class T, int kN>
__device__ __forceinline__ void probabilities_of_keys(FragmentC (&p)[kN / 8], const float* lse, int ahead,
                                                      float scale_log2) {
  const int g = lane_index() / 4, t = lane_index() % 4;
#pragma unroll
  for (int n = 0; n < kN / 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int query = 8 * n + 2 * t + i % 2;
      p[n].x[i] = exp2_fast(fmaf(p[n].x[i], scale_log2, kRaise<T> - lse[query]));
      if (g + i / 2 * 8 > ahead + query) p[n].x[i] = 0;
    }
}
// Those to slopes of the scores.
template <class T, int kN>
__device__ __forceinline__ void slopes_of_keys(FragmentC (&p)[kN / 8], const FragmentC (&d_p)[kN / 8],
                                               const float* delta) {
  const int t = lane_index() % 4;
#pragma unroll
  for (int n = 0; n < kN / 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) p[n].x[i] *= kLower<T> * (d_p[n].x[i] - delta[8 * n + 2 * t + i % 2]);
}

// Scores of 16 queries against kN keys to their slopes. lse (base 2) and delta: of rows g and g + 8; `ahead` = the
// first query - the first key.
template <int kN>
__device__ __forceinline__ void slopes_of_queries(FragmentC (&p)[kN / 8], const FragmentC (&d_p)[kN / 8],
                                                  const float (&lse)[2], const float (&delta)[2], int ahead,
                                                  float scale_log2) {
  const int g = lane_index() / 4, t = lane_index() % 4;
#pragma unroll
  for (int n = 0; n < kN / 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float x = exp2_fast(fmaf(p[n].x[i], scale_log2, -lse[i / 2])) * (d_p[n].x[i] - delta[i / 2]);
      p[n].x[i] = 8 * n + 2 * t + i % 2 > ahead + g + i / 2 * 8 ? 0.F : x;
    }
}

// Of a query: lse base 2; those behind the end have no probabilities.
struct RowFacts {
  float lse = INFINITY, delta = 0;
};
template <class T>
__device__ __forceinline__ RowFacts row_facts(const BwdArgs<T>& a, int64_t row, int head, bool there) {
  if (!there) return {};
  return {a.lse[row * a.queries.heads + head] * kLog2E,
          a.delta[(row - a.queries.cu_seqlens[0]) * a.queries.heads + head]};
}

// The tiles of kN queries that a tile of keys goes through: those from its first key on, under each head of its group.
// What is known of their rows lies in shared memory, two tiles of it, brought by the block's first kN threads.
template <class T, int kN>
class QueryTiles {
 public:
  // facts: of 4 kN numbers.
  __device__ __forceinline__ QueryTiles(const BwdArgs<T>& a, const Tile& keys, float* facts)
      : a_(a), keys_(keys), per_head_((keys.length - keys.first + kN - 1) / kN), facts_(facts) {}
  __device__ __forceinline__ int count() const { return per_head_ * a_.group; }
  __device__ __forceinline__ int first(int i) const { return keys_.first + i % per_head_ * kN; }
  __device__ __forceinline__ int head(int i) const { return keys_.head * a_.group + i / per_head_; }
  __device__ __forceinline__ int there(int i) const { return keys_.length - first(i); }
  __device__ __forceinline__ const T* q(int i, int columns) const {
    return a_.q + keys_.row(first(i)) * a_.ldq + head(i) * columns;
  }
  __device__ __forceinline__ const T* d_o(int i, int columns) const {
    return a_.d_o + keys_.row(first(i)) * a_.ldo + head(i) * columns;
  }

  __device__ __forceinline__ void read_facts(int i) {
    const int thread = static_cast<int>(threadIdx.x);
    mine_ = row_facts(a_, keys_.row(first(i) + thread), head(i), thread < kN && thread < there(i));
  }
  __device__ __forceinline__ void put_facts(int i) {
    const int thread = static_cast<int>(threadIdx.x);
    if (thread >= kN) return;
    facts_[i % 2 * kN + thread] = mine_.lse;
    facts_[(2 + i % 2) * kN + thread] = mine_.delta;
  }
  __device__ __forceinline__ const float* lse(int i) const { return facts_ + i % 2 * kN; }
  __device__ __forceinline__ const float* delta(int i) const { return facts_ + (2 + i % 2) * kN; }

 private:
  const BwdArgs<T>& a_;
  const Tile& keys_;
  int per_head_;
  float* facts_;
  RowFacts mine_;
};

}  // namespace rw::cuda
