// Rows of attention forward as a warp has them: the softmax made as keys come (Milakov & Gimelshein 2018), and the end.
#pragma once
#include "kernels/cuda/attention_plain.cuh"

namespace rw::cuda {

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

// Of 16 rows; row g + 8 i at [i]. max: of the scores before scaling by |scale|; sum: of this lane's columns.
struct SoftmaxRows {
  float max[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
};

// Scores of 16 rows, made ready for soften(): `ahead` = the first row - the first key. Keys after their query do not
// count.
template <int kKeys>
__device__ __forceinline__ void hide_later_keys(FragmentC (&s)[kKeys / 8], int ahead, float scale) {
  const int g = lane_index() / 4, t = lane_index() % 4;
  if (scale < 0) {
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) s[n].x[i] = -s[n].x[i];
  }
  if (ahead < kKeys - 1) {
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (8 * n + 2 * t + i % 2 > ahead + g + i / 2 * 8) s[n].x[i] = -INFINITY;
  }
}

// Scores to probabilities, not yet divided by their sum; what was summed before is to be multiplied by `shrink`.
template <class T, int kKeys>
__device__ __forceinline__ void soften(FragmentC (&s)[kKeys / 8], SoftmaxRows& rows, float scale, float (&shrink)[2]) {
  const float scale_log2 = fabsf(scale) * kLog2E;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float max = rows.max[i];
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) max = fmaxf(max, fmaxf(s[n].x[2 * i], s[n].x[2 * i + 1]));
    max = fmaxf(max, __shfl_xor_sync(kFullMask, max, 1));
    max = fmaxf(max, __shfl_xor_sync(kFullMask, max, 2));
    const float shift = kRaise<T> - max * scale_log2;
    shrink[i] = exp2_fast((rows.max[i] - max) * scale_log2);
    rows.max[i] = max;
    float sum = 0;
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
      for (int j = 2 * i; j < 2 * i + 2; ++j) {
        s[n].x[j] = exp2_fast(fmaf(s[n].x[j], scale_log2, shift));
        sum += s[n].x[j];
      }
    rows.sum[i] = fmaf(rows.sum[i], shrink[i], sum);
  }
}
template <int kD>
__device__ __forceinline__ void shrink_rows(FragmentC (&o)[kD / 8], const float (&shrink)[2]) {
#pragma unroll
  for (int n = 0; n < kD / 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) o[n].x[i] *= shrink[i / 2];
}

// A warp's 16 kM rows, divided by their sums, through rows `at`.. of `scratch`, which are the warp's own.
template <class T, int kD, int kM>
__device__ __forceinline__ void finish_rows(const FwdArgs<T>& a, const FragmentC (&o)[kM][kD / 8],
                                            const SoftmaxRows (&rows)[kM], T* scratch, int at, const Tile& tile) {
  const int g = lane_index() / 4, t = lane_index() % 4;
  const int64_t row0 = tile.row(tile.first + at);
  const int there = tile.length - tile.first - at;
  __syncwarp();
#pragma unroll
  for (int m = 0; m < kM; ++m) {
    float inverse[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float sum = rows[m].sum[i];
      sum += __shfl_xor_sync(kFullMask, sum, 1);
      sum += __shfl_xor_sync(kFullMask, sum, 2);
      inverse[i] = 1.F / sum;
      const int r = 16 * m + g + 8 * i;
      if (t == 0 && r < there)
        a.lse[(row0 + r) * a.sequences.heads + tile.head] = rows[m].max[i] * fabsf(a.scale) + logf(sum * kLower<T>);
    }
    put_sums<kD, kD>(scratch, at + 16 * m, 0, o[m], inverse[0], inverse[1]);
  }
  __syncwarp();
  store_rows<16 * kM, kD, kD>(a.o + row0 * a.ldo + tile.head * kD, a.ldo, scratch, at, 0, there);
}

template <class T>
FwdArgs<T> fwd_args(const AttentionFwd& a, const AttentionStrides& ld) {
  return {as<T>(a.o),  a.lse,  as<T>(a.q), as<T>(a.k), as<T>(a.v), ld.o, ld.q, ld.kv, sequences_of(a, a.heads),
          group_of(a), a.scale};
}

// By warpgroup products, for operands that come in pieces of 16 bytes and scale not 0; false where this head size or
// this device has none.
template <class T>
bool warpgroup_attention_fwd(const FwdArgs<T>& args, int64_t d, Stream s);

}  // namespace rw::cuda
