// Attention over paged keys and values, for decoding and for chunks of a prefill.
//
// A row's result is the same bits whatever else is in the batch and however its prefill was cut: each (query, head)
// goes through its context in blocks of 32 positions counted from position 0, every score is one chain of sums over D,
// every output element one chain over positions. Query heads of one key/value head are worked on together only to share
// loads; nothing of one enters another. A decode step is bound by reading K and V once.
//
// Sequences with many queries go another way (paged_prefill.h) unless the order is fixed.
#include <omp.h>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/paged_prefill.h"
#include "kernels/cpu/variant.h"
#ifdef __AVX512BF16__
#include "kernels/cpu/attention_bf16.h"
#include "kernels/cpu/gemm_amx.h"
#endif

namespace rw::RW_ISA {
namespace {

constexpr int64_t kKeys = 32;         // positions to a block
constexpr int64_t kMaxState = 16384;  // floats of q, and of o, that a task holds on its stack
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

// p[r][key + j] = q . k, for kHeads heads and kCount keys.
template <int kHeads, int kCount, class T>
RW_INLINE void scores(const Heads& h, Scores& s, const KeyBlock<T>& b, int64_t key) {
  vf acc[kHeads][kCount] = {};
  const auto step = [&](int64_t c, auto read) __attribute__((always_inline)) {
    vf q[kHeads];
#pragma GCC unroll 4
    for (int r = 0; r < kHeads; ++r) q[r] = load(h.q + r * h.dp + c);
#pragma GCC unroll 4
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
RW_INLINE void weighted_values(const Heads& h, const Scores& s, const KeyBlock<T>& b, int64_t c, Read read) {
  vf acc[kHeads][kVecs];
#pragma GCC unroll 4
  for (int r = 0; r < kHeads; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < kVecs; ++i) acc[r][i] = load(h.o + r * h.dp + c + i * kW) * s.correction[r];
  }
  for (int64_t j = 0; j < b.n; ++j) {
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

// Asks for keys [key, end) of a block that is to come. Pages lie anywhere, so the CPU's own prefetching loses its way.
template <class T>
RW_INLINE void prefetch(const Heads& h, const KeyBlock<T>& b, int64_t key, int64_t end) {
  constexpr int64_t kLine = 64 / sizeof(T);
  for (; key < min_of(end, b.n); ++key) {
    for (int64_t c = h.column; c < h.column + h.d; c += kLine) {
      __builtin_prefetch(b.k[key] + c, 0, 2);
      __builtin_prefetch(b.v[key] + c, 0, 2);
    }
  }
}

// kHeads heads through one block, while the next one is fetched.
template <int kHeads, class T>
[[gnu::noinline]] void through_block(const Heads& h, const KeyBlock<T>& b, const KeyBlock<T>& next, float scale_log2) {
  constexpr int kCount = kW == 16 || kHeads == 1 ? 4 : 2, kVecs = kW == 16 && kHeads == 4 ? 2 : 4 / kHeads;
  Scores s = {};
  int64_t key = 0;
  for (; key + kCount <= b.n; key += kCount) {
    scores<kHeads, kCount>(h, s, b, key);
    prefetch(h, next, key, key + kCount);
  }
  for (; key < b.n; ++key) scores<kHeads, 1>(h, s, b, key);
  for (int64_t r = 0; r < kHeads; ++r) online_softmax(h, s, r, b.n, scale_log2);
  if constexpr (kScaled<T>) {
    for (int64_t j = 0; j < b.n; ++j) {
      for (int64_t r = 0; r < kHeads; ++r) s.p[r][j] *= b.v_scale[j][h.kv_head];
    }
  }
  const auto whole = [](const T* p) __attribute__((always_inline)) { return load(p); };
  int64_t c = 0;
  for (; c + kVecs * kW <= h.d; c += kVecs * kW) weighted_values<kHeads, kVecs>(h, s, b, c, whole);
  for (; c + kW <= h.d; c += kW) weighted_values<kHeads, 1>(h, s, b, c, whole);
  if (c < h.d) {
    const auto rest = [n = h.d - c](const T* p) __attribute__((always_inline)) { return load_n(p, n); };
    weighted_values<kHeads, 1>(h, s, b, c, rest);
  }
}

// The query heads of `kv_heads` kv heads, from kv_head on, of one token over `context` positions of its sequence.
template <class T>
struct Query {
  T* o;        // (kv_heads * group, d)
  const T* q;  // likewise
  const int32_t* pages;
  int64_t kv_head, kv_heads, context;
};

// The addresses of the next n positions, from `kv_head` on.
template <class T>
RW_INLINE void point_to(KeyBlock<T>& b, PageCursor& cursor, int64_t n, const PagedAttention& a, int64_t kv_head) {
  b.n = n;
  for (int64_t j = 0; j < n; ++j) {
    const int64_t at = cursor.next() * a.kv_heads + kv_head;
    b.k[j] = static_cast<const T*>(a.k_pages) + at * a.d;
    b.v[j] = static_cast<const T*>(a.v_pages) + at * a.d;
    if constexpr (kScaled<T>) {
      b.k_scale[j] = a.k_scales + at;
      b.v_scale[j] = a.v_scales + at;
    }
  }
}

template <class T, class Kv>
void attend(const PagedAttention& a, const Query<T>& x) {
  alignas(64) float q[kMaxState], o[kMaxState];
  float max[kMaxState / 16], sum[kMaxState / 16];
  const int64_t d = a.d, dp = round_up(d, 16), group = a.heads / a.kv_heads, heads = x.kv_heads * group;
  const float scale_log2 = a.scale * 1.44269504f;
  for (int64_t h = 0; h < heads; ++h) {
    widen_row(q + h * dp, x.q + h * d, d, dp);
    for (int64_t c = 0; c < dp; c += kW) store(o + h * dp + c, vf{});
    max[h] = kNone;
    sum[h] = 0;
  }
  PageCursor cursor{.pages = x.pages, .page_tokens = a.page_tokens};
  KeyBlock<Kv> b, next;
  point_to(next, cursor, min_of(kKeys, x.context), a, x.kv_head);
  for (int64_t from = 0; from < x.context; from += kKeys) {
    b = next;
    point_to(next, cursor, min_of(kKeys, max_of(0, x.context - from - kKeys)), a, x.kv_head);
    for (int64_t i = 0; i < x.kv_heads; ++i) {
      for (int64_t h = i * group; h < (i + 1) * group;) {
        const Heads some{.q = q + h * dp,
                         .o = o + h * dp,
                         .max = max + h,
                         .sum = sum + h,
                         .d = d,
                         .dp = dp,
                         .kv_head = i,
                         .column = i * d};
        const int64_t left = (i + 1) * group - h;
        const int64_t taken = left >= 4 ? 4 : left >= 2 ? 2 : 1;
        (taken == 4   ? through_block<4, Kv>
         : taken == 2 ? through_block<2, Kv>
                      : through_block<1, Kv>)(some, b, next, scale_log2);
        h += taken;
      }
    }
  }
  for (int64_t h = 0; h < heads; ++h) store_rows(x.o + h * d, 0, o + h * dp, 0, 1, d, 1.0f / sum[h]);
}

using TiledPrefill = void (*)(const PagedAttention&, Stream);

// How many kv heads a task takes, of `queries` of `sequences` that are not tiled. Decoding reads every key once: the
// heads of a position lie side by side, so a task takes as many as leave 4 tasks to a thread. The queries of a prefill
// read the same keys again and again: one head's stay in the cache.
int64_t heads_per_task(const PagedAttention& a, int64_t threads) {
  int64_t queries = 0, sequences = 0;
  for (int64_t s = 0; s < a.n_seq; ++s) {
    if (tiled(a, s)) continue;
    queries += a.q_start[s + 1] - a.q_start[s];
    ++sequences;
  }
  if (queries == 0 || queries > sequences) return 1;
  const int64_t fit = kMaxState / (round_up(a.d, 16) * (a.heads / a.kv_heads));
  const int64_t parts = (4 * threads + queries - 1) / queries, share = (a.kv_heads + parts - 1) / parts;
  return min_of(share, fit);
}

template <class T, class Kv>
void attend_all(const PagedAttention& a, Stream stream, TiledPrefill tiled_prefill) {
  const int64_t ldo = a.ldo == 0 ? a.heads * a.d : a.ldo, ldq = a.ldq == 0 ? a.heads * a.d : a.ldq;
  const int64_t share = heads_per_task(a, stream.threads), parts = (a.kv_heads + share - 1) / share;
  const auto tasks_of = [&](int64_t s) { return tiled(a, s) ? 0 : (a.q_start[s + 1] - a.q_start[s]) * parts; };
#pragma omp parallel num_threads(stream.threads)
  {
    tiled_prefill(a, stream);
    // Tasks of one sequence and the same heads are neighbours: they read the same keys.
    TaskWalk walk(a.n_seq, tasks_of);
#pragma omp for schedule(dynamic, 1) nowait
    for (int64_t i = 0; i < walk.all(); ++i) {
      const auto [s, task] = walk.at(i);
      const int64_t first = a.q_start[s], queries = a.q_start[s + 1] - first, query = task % queries;
      const int64_t kv_head = task / queries * share, column = kv_head * (a.heads / a.kv_heads) * a.d;
      attend<T, Kv>(a, {.o = static_cast<T*>(a.o) + (first + query) * ldo + column,
                        .q = static_cast<const T*>(a.q) + (first + query) * ldq + column,
                        .pages = a.page_table + s * a.max_pages,
                        .kv_head = kv_head,
                        .kv_heads = min_of(share, a.kv_heads - kv_head),
                        .context = a.context_len[s] - queries + query + 1});
    }
  }
}

template <class T, class Kv>
void f32_prefill(const PagedAttention& a, Stream stream) {
  prefill<F32Math, T, Kv>(a, stream.threads);
}

// bf16_prefill: for batches of bf16 over pages of bf16 or i8; null: in f32 arithmetic, as others.
void attention(const PagedAttention& a, Stream stream, TiledPrefill bf16_prefill) {
  CHECK(a.d > 0 && a.kv_heads > 0 && a.heads % a.kv_heads == 0,
        "paged_attention: %lld heads over %lld kv heads of size %lld; heads must be a multiple of kv heads",
        static_cast<long long>(a.heads), static_cast<long long>(a.kv_heads), static_cast<long long>(a.d));
  CHECK(a.heads / a.kv_heads * round_up(a.d, 16) <= kMaxState,
        "paged_attention: %lld query heads of size %lld to a kv head, expected at most %lld elements together",
        static_cast<long long>(a.heads / a.kv_heads), static_cast<long long>(a.d), static_cast<long long>(kMaxState));
  if (a.n_seq == 0 || a.q_start[a.n_seq] == a.q_start[0]) return;
  const bool in_bf16 = a.t == DType::bf16 && (a.kv_t == DType::bf16 || a.kv_t == DType::i8) && bf16_prefill != nullptr;
  with_page_type(a, "paged_attention", [&](auto page) {
    with_type(a.t, [&](auto element) {
      using T = decltype(element);
      using Kv = decltype(page);
      attend_all<T, Kv>(a, stream, in_bf16 ? bf16_prefill : &f32_prefill<T, Kv>);
    });
  });
}

}  // namespace

#ifdef __AVX512BF16__
void paged_attention_dot(const PagedAttention& a, Stream stream) { attention(a, stream, paged_prefill_dot); }
#endif

void paged_attention(const PagedAttention& a, Stream stream) {
#ifdef __AVX512BF16__
  attention(a, stream, amx_ready() ? cpu_amx::paged_prefill_tiles : paged_prefill_dot);
#else
  attention(a, stream, nullptr);
#endif
}

// F32Math needs the most, and serves every type.
int64_t paged_attention_workspace(const PagedAttention& a, Stream stream) {
  return stream.threads * round_up(PrefillSpace<F32Math>::bytes(round_up(a.d, kStep)), 64) + 64;
}

}  // namespace rw::RW_ISA
