// Attention over paged keys and values, for decoding and for chunks of a prefill.
//
// A row's result is the same bits whatever else is in the batch and however its prefill was cut: each (query, head)
// goes through its context in chunks that its length alone determines, and these in blocks of 32 positions; every score
// is one chain of sums over D, every output element one chain over the positions of a chunk. Query heads of one
// key/value head are worked on together only to share loads; nothing of one enters another. A decode step is bound by
// reading K and V once.
//
// Sequences with many queries go another way (paged_prefill.h) unless the order is fixed.
#include <omp.h>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/paged_heads.h"
#include "kernels/cpu/paged_prefill.h"
#include "kernels/cpu/variant.h"
#ifdef __AVX512BF16__
#include "kernels/cpu/attention_bf16.h"
#include "kernels/cpu/gemm_amx.h"
#endif

namespace rw::RW_ISA {
namespace {

constexpr int64_t kMaxState = 16384;  // floats of q, and of o, that a task holds on its stack

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

// A context of more than 512 positions is cut into chunks, at most 16: they begin and end where the context's length
// alone says. Each is gone through by itself, and what came of them is merged in their order, whoever did which.
constexpr int64_t kMaxChunks = 16;
constexpr int64_t chunk_length(int64_t context) {
  int64_t length = 512;
  while (context > kMaxChunks * length) length *= 2;
  return length;
}
constexpr int64_t chunks_of(int64_t context) { return (context + chunk_length(context) - 1) / chunk_length(context); }

// What has come of the positions gone through: for each query head o (dp), not yet divided by sum, and max and sum.
struct State {
  float *o, *max, *sum;
  static int64_t floats(int64_t heads, int64_t dp) { return heads * (dp + 2); }
};

// One chunk, from nothing.
template <class T, class Kv>
void attend_chunk(const PagedAttention& a, const Query<T>& x, int64_t chunk, const State& state) {
  alignas(64) float q[kMaxState];
  const int64_t d = a.d, dp = round_up(d, 16), group = a.heads / a.kv_heads, heads = x.kv_heads * group;
  const int64_t passes = x.kv_heads * (group / 4 + group % 4 / 2 + group % 2);
  const float scale_log2 = a.scale * 1.44269504f;
  for (int64_t h = 0; h < heads; ++h) {
    widen_row(q + h * dp, x.q + h * d, d, dp);
    for (int64_t c = 0; c < dp; c += kW) store(state.o + h * dp + c, vf{});
    state.max[h] = kNone;
    state.sum[h] = 0;
  }
  const int64_t length = chunk_length(x.context), begin = chunk * length, end = min_of(x.context, begin + length);
  PageCursor cursor{x.pages, a.page_tokens, begin / a.page_tokens, begin % a.page_tokens};
  KeyBlock<Kv> b, next;
  point_to(next, cursor, min_of(kKeys, end - begin), a, x.kv_head);
  for (int64_t from = begin; from < end; from += kKeys) {
    b = next;
    // The one after the last is the next chunk's first.
    point_to(next, cursor, min_of(kKeys, max_of(0, x.context - from - kKeys)), a, x.kv_head);
    Coming<Kv> coming(next, x.kv_heads * d, passes);
    for (int64_t i = 0; i < x.kv_heads; ++i) {
      for (int64_t h = i * group; h < (i + 1) * group;) {
        const Heads some{.q = q + h * dp,
                         .o = state.o + h * dp,
                         .max = state.max + h,
                         .sum = state.sum + h,
                         .d = d,
                         .dp = dp,
                         .kv_head = i,
                         .column = i * d};
        const int64_t left = (i + 1) * group - h;
        const int64_t taken = left >= 4 ? 4 : left >= 2 ? 2 : 1;
        (taken == 4   ? through_block<4, Kv>
         : taken == 2 ? through_block<2, Kv>
                      : through_block<1, Kv>)(some, b, coming, scale_log2);
        h += taken;
      }
    }
  }
}

// What came of a chunk into what came of those before it.
void merge(const State& into, const State& chunk, int64_t heads, int64_t dp) {
  for (int64_t h = 0; h < heads; ++h) {
    const float max = into.max[h] > chunk.max[h] ? into.max[h] : chunk.max[h];
    const float old = exp2_negative<5>(splat(into.max[h] - max))[0];
    const float added = exp2_negative<5>(splat(chunk.max[h] - max))[0];
    into.max[h] = max;
    into.sum[h] = into.sum[h] * old + chunk.sum[h] * added;
    for (int64_t c = h * dp; c < (h + 1) * dp; c += kW)
      store(into.o + c, load(into.o + c) * old + load(chunk.o + c) * added);
  }
}

template <class T>
void finish(const State& s, T* o, int64_t heads, int64_t d, int64_t dp) {
  for (int64_t h = 0; h < heads; ++h) store_rows(o + h * d, 0, s.o + h * dp, 0, 1, d, 1.0f / s.sum[h]);
}

template <class T, class Kv>
void attend(const PagedAttention& a, const Query<T>& x) {
  alignas(64) float o[2][kMaxState];
  float max[2][kMaxState / 16], sum[2][kMaxState / 16];
  const State all{o[0], max[0], sum[0]}, one{o[1], max[1], sum[1]};
  const int64_t dp = round_up(a.d, 16), heads = x.kv_heads * (a.heads / a.kv_heads);
  attend_chunk<T, Kv>(a, x, 0, all);
  for (int64_t i = 1; i < chunks_of(x.context); ++i) {
    attend_chunk<T, Kv>(a, x, i, one);
    merge(all, one, heads, dp);
  }
  finish(all, x.o, heads, a.d, dp);
}

using TiledPrefill = void (*)(const PagedAttention&, Stream);

// The sequences that are not tiled, and how they are divided into tasks: of a query, `share` kv heads and all its
// chunks, or one of them.
struct Single {
  int64_t sequences = 0, queries = 0, chunks = 0;
  int64_t share = 1, parts;
  bool apart = false;  // a task takes one chunk, and leaves what came of it in the workspace

  Single(const PagedAttention& a, int64_t threads) : parts(a.kv_heads) {
    for (int64_t s = 0; s < a.n_seq; ++s) {
      const int64_t n = a.q_start[s + 1] - a.q_start[s];
      if (n == 0 || tiled(a, s)) continue;
      ++sequences;
      queries += n;
      chunks += chunks_of(a.context_len[s]);
    }
    // The queries of a prefill read the same keys again and again: one head's stay in the cache. Decoding reads every
    // key once, and the heads of a position lie side by side: a task takes them all if that leaves 4 tasks to a thread.
    if (queries == 0 || queries > sequences) return;
    const int64_t enough = threads == 1 ? 1 : 4 * threads;
    apart = a.workspace != nullptr && sequences < enough && chunks > sequences && chunks <= room(threads);
    const int64_t tasks = apart ? chunks : sequences, fit = kMaxState / (round_up(a.d, 16) * (a.heads / a.kv_heads));
    const int64_t wanted = (enough + tasks - 1) / tasks;
    share = min_of(fit, (a.kv_heads + wanted - 1) / wanted);
    parts = (a.kv_heads + share - 1) / share;
  }
  static int64_t room(int64_t threads) { return kMaxChunks + 8 * threads; }  // chunks in the workspace

  int64_t tasks_of(const PagedAttention& a, int64_t s) const {
    if (tiled(a, s)) return 0;
    return (a.q_start[s + 1] - a.q_start[s]) * parts * (apart ? chunks_of(a.context_len[s]) : 1);
  }
};

// With a head size that every policy pads to, F32Math needs the most.
int64_t prefill_bytes(const PagedAttention& a, int64_t threads) {
  return threads * round_up(PrefillSpace<F32Math>::bytes(round_up(a.d, kStep)), 64) + 64;
}

template <class T, class Kv>
class Decode {
 public:
  Decode(const PagedAttention& a, Stream stream)
      : a_(a),
        single_(a, stream.threads),
        dp_(round_up(a.d, 16)),
        ldo_(a.ldo == 0 ? a.heads * a.d : a.ldo),
        ldq_(a.ldq == 0 ? a.heads * a.d : a.ldq),
        left_(reinterpret_cast<float*>(static_cast<char*>(a.workspace) + prefill_bytes(a, stream.threads))) {}

  // Every thread of the team calls it.
  void run() const {
    const auto tasks_of = [this](int64_t s) { return single_.tasks_of(a_, s); };
    // Tasks of one sequence and the same heads are neighbours: they read the same keys.
    TaskWalk walk(a_.n_seq, tasks_of);
    if (!single_.apart) {
#pragma omp for schedule(dynamic, 1) nowait
      for (int64_t i = 0; i < walk.all(); ++i) {
        const auto [s, task] = walk.at(i);
        const int64_t queries = a_.q_start[s + 1] - a_.q_start[s];
        attend<T, Kv>(a_, query(s, task % queries, task / queries));
      }
      return;
    }
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < walk.all(); ++i) {
      const auto [s, task] = walk.at(i);
      attend_chunk<T, Kv>(a_, query(s, 0, task % single_.parts), task / single_.parts, left_by(i));
    }
    TaskWalk again(a_.n_seq, tasks_of);
#pragma omp for schedule(static)
    for (int64_t i = 0; i < again.all(); ++i) {
      const auto [s, task] = again.at(i);
      if (task >= single_.parts) continue;
      const Query<T> x = query(s, 0, task);
      const int64_t heads = x.kv_heads * (a_.heads / a_.kv_heads);
      for (int64_t j = 1; j < chunks_of(x.context); ++j) merge(left_by(i), left_by(i + j * single_.parts), heads, dp_);
      finish(left_by(i), x.o, heads, a_.d, dp_);
    }
  }

 private:
  Query<T> query(int64_t s, int64_t i, int64_t part) const {
    const int64_t first = a_.q_start[s], queries = a_.q_start[s + 1] - first, kv_head = part * single_.share;
    const int64_t column = kv_head * (a_.heads / a_.kv_heads) * a_.d;
    return {.o = static_cast<T*>(a_.o) + (first + i) * ldo_ + column,
            .q = static_cast<const T*>(a_.q) + (first + i) * ldq_ + column,
            .pages = a_.page_table + s * a_.max_pages,
            .kv_head = kv_head,
            .kv_heads = min_of(single_.share, a_.kv_heads - kv_head),
            .context = a_.context_len[s] - queries + i + 1};
  }
  State left_by(int64_t task) const {
    const int64_t heads = single_.share * (a_.heads / a_.kv_heads);
    float* o = left_ + task * State::floats(heads, dp_);
    return {o, o + heads * dp_, o + heads * (dp_ + 1)};
  }

  const PagedAttention& a_;
  Single single_;
  int64_t dp_, ldo_, ldq_;
  float* left_;
};

template <class T, class Kv>
void attend_all(const PagedAttention& a, Stream stream, TiledPrefill tiled_prefill) {
  const Decode<T, Kv> decode(a, stream);
#pragma omp parallel num_threads(stream.threads)
  {
    tiled_prefill(a, stream);
    decode.run();
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

int64_t paged_attention_workspace(const PagedAttention& a, Stream stream) {
  // A share of heads may be rounded up: twice the heads is enough.
  const int64_t chunk = State::floats(2 * a.heads, round_up(a.d, 16)) * static_cast<int64_t>(sizeof(float));
  return prefill_bytes(a, stream.threads) + Single::room(stream.threads) * chunk;
}

}  // namespace rw::RW_ISA
