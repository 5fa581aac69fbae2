// Up to 4 query heads of a token through a block of 32 positions of their kv head, wherever these lie.
#pragma once
#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/page_types.h"

namespace rw::RW_ISA {
namespace {

constexpr int64_t kKeys = 32;  // positions to a block
constexpr float kNone = -1e30f;

// The positions of one block: where their keys and values are, from a task's first kv head on, and, of whole numbers,
// their scales.
template <class T>
struct KeyBlock {
  const T *k[kKeys], *v[kKeys];
  const float *k_scale[kKeys], *v_scale[kKeys];
  int64_t n;
};
template <class T>
constexpr bool kScaled = sizeof(T) == 1;

// The block that is to come, asked for line by line while this one is worked on: a CPU waits for few lines at a time,
// and more asked for at once stop it. Pages lie anywhere, so its own prefetching loses its way.
template <class T>
struct Coming {
  static constexpr int64_t kLine = 64 / sizeof(T), kOne = 256;

  const KeyBlock<T>& block;
  int64_t width;  // elements of a position
  int64_t rate;   // pairs of lines, of k and of v, for each key worked on, in units of 1 / kOne
  int64_t due = 0, key = 0, column = 0;

  Coming(const KeyBlock<T>& b, int64_t elements, int64_t passes)
      : block(b), width(elements), rate((elements + kLine - 1) / kLine * kOne / (2 * passes) + 1) {}
  RW_INLINE void prefetch(int64_t keys) {
    for (due += keys * rate; due >= kOne; due -= kOne) {
      if (key >= block.n) return;
      __builtin_prefetch(block.k[key] + column, 0, 2);
      __builtin_prefetch(block.v[key] + column, 0, 2);
      column += kLine;
      if (column < width) continue;
      column = 0;
      ++key;
    }
  }
};

// Up to 4 query heads of one token and one kv head. dp: d rounded up to whole vectors.
struct Heads {
  const float* q;  // (heads, dp)
  float* o;        // (heads, dp), not yet divided by sum
  float *max, *sum;
  int64_t d, dp;
  int64_t kv_head, column;  // from a block's addresses: the kv head, and its elements
};
// Their scores over a block, then their probabilities; and by what o shrinks.
struct Scores {
  alignas(64) float p[4][kKeys];
  float correction[4];
};

#if defined(__AVX512F__)
// The sums over the lanes of 16 vectors, each in the order of hsum, with a third of its shuffles.
RW_INLINE vf hsums(const vf (&in)[16]) {
  // Element 4 i + j of the result comes of the vector at place kLane[i] + kElement[j] of the folding below.
  constexpr int kLane[4] = {0, 8, 4, 12}, kElement[4] = {0, 2, 1, 3};
  vf x[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) x[kLane[i / 4] + kElement[i % 4]] = in[i];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i)
    x[i] = _mm512_shuffle_f32x4(x[i], x[i + 8], 0x44) + _mm512_shuffle_f32x4(x[i], x[i + 8], 0xee);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i)
    x[i] = _mm512_shuffle_f32x4(x[i], x[i + 4], 0x88) + _mm512_shuffle_f32x4(x[i], x[i + 4], 0xdd);
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) x[i] = _mm512_shuffle_ps(x[i], x[i + 2], 0x44) + _mm512_shuffle_ps(x[i], x[i + 2], 0xee);
  return _mm512_shuffle_ps(x[0], x[1], 0x88) + _mm512_shuffle_ps(x[0], x[1], 0xdd);
}
#endif

// p[r][key + j] = q . k, for kHeads heads and kCount keys.
template <int kHeads, int kCount, class T>
RW_INLINE void scores(const Heads& h, Scores& s, const KeyBlock<T>& b, int64_t key) {
  vf acc[kHeads][kCount] = {};
  const auto step = [&](int64_t c, auto read) __attribute__((always_inline)) {
    vf q[kHeads];
#pragma GCC unroll 4
    for (int r = 0; r < kHeads; ++r) q[r] = load(h.q + r * h.dp + c);
#pragma GCC unroll 16
    for (int j = 0; j < kCount; ++j) {
      const vf k = read(b.k[key + j] + h.column + c);
#pragma GCC unroll 4
      for (int r = 0; r < kHeads; ++r) acc[r][j] += q[r] * k;
    }
  };
  int64_t c = 0;
  for (; c + kW <= h.d; c += kW)
    step(
        c, [](const T* p) __attribute__((always_inline)) { return load(p); });
  if (c < h.d)
    step(
        c, [n = h.d - c](const T* p) __attribute__((always_inline)) { return load_n(p, n); });
#if defined(__AVX512F__)
  if constexpr (kHeads * kCount == 16) {
    vf flat[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) flat[i] = acc[i / kCount][i % kCount];
    alignas(64) float sums[16];
    store(sums, hsums(flat));
#pragma GCC unroll 4
    for (int r = 0; r < kHeads; ++r) {
#pragma GCC unroll 16
      for (int j = 0; j < kCount; ++j) {
        const float score = sums[r * kCount + j];
        s.p[r][key + j] = kScaled<T> ? score * b.k_scale[key + j][h.kv_head] : score;
      }
    }
    return;
  }
#endif
#pragma GCC unroll 4
  for (int r = 0; r < kHeads; ++r) {
#pragma GCC unroll 4
    for (int j = 0; j < kCount; ++j) {
      const float score = hsum(acc[r][j]);
      s.p[r][key + j] = kScaled<T> ? score * b.k_scale[key + j][h.kv_head] : score;
    }
  }
}

// o[r] = o[r] * correction + sum over keys of p v, for kHeads heads and kVecs vectors from column c.
template <int kHeads, int kVecs, class T, class Read>
RW_INLINE void weighted_values(const Heads& h, const Scores& s, const KeyBlock<T>& b, int64_t c, Read read,
                               Coming<T>* coming = nullptr) {
  vf acc[kHeads][kVecs];
#pragma GCC unroll 4
  for (int r = 0; r < kHeads; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < kVecs; ++i) acc[r][i] = load(h.o + r * h.dp + c + i * kW) * s.correction[r];
  }
  for (int64_t j = 0; j < b.n; ++j) {
    if (coming != nullptr) coming->prefetch(1);
#pragma GCC unroll 4
    for (int i = 0; i < kVecs; ++i) {
      const vf v = read(b.v[j] + h.column + c + i * kW);
#pragma GCC unroll 4
      for (int r = 0; r < kHeads; ++r) acc[r][i] += splat(s.p[r][j]) * v;
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kHeads; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < kVecs; ++i) store(h.o + r * h.dp + c + i * kW, acc[r][i]);
  }
}

// From scores to probabilities relative to the running maximum, for head r.
RW_INLINE void online_softmax(const Heads& h, Scores& s, int64_t r, int64_t n, float scale_log2) {
  float lane[kW];
  for (int64_t i = 0; i < kW; ++i) lane[i] = static_cast<float>(i);
  const vf index = load(lane);
  vf score[kKeys / kW], m = splat(h.max[r]);
  for (int64_t i = 0; i < kKeys / kW; ++i) {
    const vf x = load(s.p[r] + i * kW) * scale_log2;
    score[i] = index < static_cast<float>(n - i * kW) ? x : splat(kNone);
    m = vmax(m, score[i]);
  }
  const float max = hmax(m);
  vf sum{};
  for (int64_t i = 0; i < kKeys / kW; ++i) {
    const vf p = exp2_negative<5>(score[i] - max);
    const vf kept = index < static_cast<float>(n - i * kW) ? p : vf{};
    store(s.p[r] + i * kW, kept);
    sum += kept;
  }
  s.correction[r] = exp2_negative<5>(splat(h.max[r] - max))[0];
  h.sum[r] = h.sum[r] * s.correction[r] + hsum(sum);
  h.max[r] = max;
}

// kHeads heads through one block, while the next one is fetched.
template <int kHeads, class T>
[[gnu::noinline]] void through_block(const Heads& h, const KeyBlock<T>& b, Coming<T>& coming, float scale_log2) {
  constexpr int kCount = kW == 16 ? 16 / kHeads : kHeads == 1 ? 4 : 2, kVecs = kW == 16 && kHeads == 4 ? 2 : 4 / kHeads;
  Scores s = {};
  int64_t key = 0;
  for (; key + kCount <= b.n; key += kCount) {
    scores<kHeads, kCount>(h, s, b, key);
    coming.prefetch(kCount);
  }
  for (; key + 2 <= b.n; key += 2) scores<kHeads, 2>(h, s, b, key);
  if (key < b.n) scores<kHeads, 1>(h, s, b, key);
  for (int64_t r = 0; r < kHeads; ++r) online_softmax(h, s, r, b.n, scale_log2);
  if constexpr (kScaled<T>) {
    for (int64_t j = 0; j < b.n; ++j) {
      for (int64_t r = 0; r < kHeads; ++r) s.p[r][j] *= b.v_scale[j][h.kv_head];
    }
  }
  const auto whole = [](const T* p) __attribute__((always_inline)) { return load(p); };
  int64_t c = 0;
  for (; c + kVecs * kW <= h.d; c += kVecs * kW)
    weighted_values<kHeads, kVecs>(h, s, b, c, whole, c == 0 ? &coming : nullptr);
  for (; c + kW <= h.d; c += kW) weighted_values<kHeads, 1>(h, s, b, c, whole);
  if (c < h.d) {
    const auto rest = [n = h.d - c](const T* p) __attribute__((always_inline)) { return load_n(p, n); };
    weighted_values<kHeads, 1>(h, s, b, c, rest);
  }
}

}  // namespace
}  // namespace rw::RW_ISA
