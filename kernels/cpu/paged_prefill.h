// Attention of many queries of a sequence over its pages: blocks of 64 queries of a head against blocks of 64 keys
// counted from position 0, as in attention_forward.h. A task takes up to 8 blocks of queries, of the heads of one kv
// head and of successive queries, so that keys are gathered from their pages once for all of them. A block of queries
// does the same steps whatever else is in its task.
#pragma once
#include "kernels/cpu/attention_forward.h"
#include "kernels/cpu/page_types.h"
#include "kernels/cpu/paged_tasks.h"

namespace rw::RW_ISA {
namespace {

constexpr int64_t kMaxBlocks = 8;  // of queries, to a task

// A task's blocks of queries: as many as keep their state in the second level cache.
inline int64_t blocks_that_fit(int64_t d) { return max_of(1, min_of(kMaxBlocks, 1024 / round_up(d, kStep))); }

// A row of d elements of a page into dp, zeros behind: an A operand's row. Whole numbers become the numbers they are.
template <class Kv>
RW_INLINE void gather_row(float* dst, const Kv* src, int64_t d, int64_t dp) {
  int64_t c = 0;
  for (; c + kW <= d; c += kW) store(dst + c, load(src + c));
  if (c < d) {
    store(dst + c, load_n(src + c, d - c));
    c += kW;
  }
  for (; c < dp; c += kW) store(dst + c, vf{});
}
#if defined(__AVX512BF16__)
RW_INLINE void gather_row(uint32_t* dst, const bf16* src, int64_t d, int64_t dp) {
  for (int64_t c = 0; c < dp; c += 32) {
    const int64_t n = max_of(0, min_of(32, d - c));
    const auto mask = static_cast<__mmask32>((uint64_t{1} << n) - 1);
    _mm512_storeu_si512(dst + c / 2, _mm512_maskz_loadu_epi16(mask, src + c));
  }
}
RW_INLINE void gather_row(uint32_t* dst, const int8_t* src, int64_t d, int64_t dp) {  // 8 bits are exact in bf16
  for (int64_t c = 0; c < dp; c += 16) {
    const int64_t n = max_of(0, min_of(16, d - c));
    const __m128i q = _mm_maskz_loadu_epi8(static_cast<__mmask16>((1u << n) - 1u), src + c);
    const __m512i bits = _mm512_castps_si512(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(q)));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(dst + c / 2), _mm512_cvtepi32_epi16(_mm512_srli_epi32(bits, 16)));
  }
}
#endif

// Workspace of one thread.
template <class M>
struct PrefillSpace {
  using W = typename M::W;
  ForwardTile<M> tile;
  W *k_rows, *v_columns;     // a block of keys and values
  float *k_scale, *v_scale;  // (64)
  Carver states;             // of the blocks of queries

  PrefillSpace(Carver c, const HeadShape<M>& h)
      : tile(c, h),
        k_rows(c.take<W>(h.rows_words())),
        v_columns(c.take<W>(h.columns_words())),
        k_scale(c.take<float>(kBlock)),
        v_scale(c.take<float>(kBlock)),
        states(c) {}
  static int64_t bytes(int64_t d) {
    const HeadShape<M> h(d);
    Carver state, all = PrefillSpace(Carver{}, h).states;
    QueryState<M>(state, h);
    return all.used + blocks_that_fit(d) * state.used;
  }
  QueryState<M> state(const HeadShape<M>& h, int64_t i) const {
    Carver size, c = states;
    QueryState<M>(size, h);
    c.used += i * size.used;
    return QueryState<M>(c, h);
  }
};

template <class M, class T, class Kv>
class Prefill {
 public:
  Prefill(const PagedAttention& a, int64_t threads)
      : a_(a),
        h_(a.d),
        ldo_(a.ldo == 0 ? a.heads * a.d : a.ldo),
        ldq_(a.ldq == 0 ? a.heads * a.d : a.ldq),
        group_(a.heads / a.kv_heads),
        heads_(min_of(group_, blocks_that_fit(a.d))),
        blocks_(max_of(1, blocks_that_fit(a.d) / heads_)) {
    int64_t one = 0;  // tasks, if each took one block of queries
    for (int64_t s = 0; s < a.n_seq; ++s) one += tasks_of(s, 1);
    blocks_ = max_of(1, min_of(blocks_, one / (4 * threads)));
  }
  int64_t tasks_of(int64_t s) const { return tasks_of(s, blocks_); }

  void run(const PrefillSpace<M>& space, int64_t s, int64_t task) const {
    const int64_t first = a_.q_start[s], n = a_.q_start[s + 1] - first, before = a_.context_len[s] - n;
    const int64_t parts = (n + blocks_ * kBlock - 1) / (blocks_ * kBlock);  // the longest first
    const int64_t begin = (parts - 1 - task % parts) * blocks_ * kBlock, end = min_of(n, begin + blocks_ * kBlock);
    const int64_t shares = (group_ + heads_ - 1) / heads_, kv_head = task / parts / shares;
    const int64_t head = kv_head * group_ + task / parts % shares * heads_;
    const int64_t head_end = min_of(head + heads_, (kv_head + 1) * group_);

    ForwardTile<M> t = space.tile;
    struct Block {
      int64_t head, query, queries, lanes;
    } blocks[kMaxBlocks];
    int64_t n_blocks = 0;
    for (int64_t hd = head; hd < head_end; ++hd) {
      for (int64_t q = begin; q < end; q += kBlock) {
        const int64_t queries = min_of(kBlock, end - q), lanes = round_up(queries, kStep);
        static_cast<QueryState<M>&>(t) = space.state(h_, n_blocks);
        blocks[n_blocks++] = {hd, q, queries, lanes};
        start_queries(t, h_, static_cast<const T*>(a_.q) + (first + q) * ldq_ + hd * a_.d, ldq_, queries, lanes);
      }
    }
    const int64_t context = before + end;
    PageCursor cursor{.pages = a_.page_table + s * a_.max_pages, .page_tokens = a_.page_tokens};
    Places places, next;
    find(next, cursor, min_of(kBlock, context), kv_head);
    for (int64_t key = 0; key < context; key += kBlock) {
      places = next;
      find(next, cursor, max_of(0, min_of(kBlock, context - key - kBlock)), kv_head);
      gather(space, places);
      for (int64_t i = 0; i < n_blocks; ++i) {
        static_cast<QueryState<M>&>(t) = space.state(h_, i);
        go_through(space, t, key, before + blocks[i].query, blocks[i].lanes);
        prefetch(next, i * kBlock / n_blocks, (i + 1) * kBlock / n_blocks);
      }
    }
    for (int64_t i = 0; i < n_blocks; ++i) {
      static_cast<QueryState<M>&>(t) = space.state(h_, i);
      T* o = static_cast<T*>(a_.o) + (first + blocks[i].query) * ldo_ + blocks[i].head * a_.d;
      finish_queries(t, h_, o, ldo_, blocks[i].queries, blocks[i].lanes);
    }
  }

 private:
  static constexpr bool kScaled = sizeof(Kv) == 1;

  int64_t tasks_of(int64_t s, int64_t blocks) const {
    if (!tiled(a_, s)) return 0;
    const int64_t n = a_.q_start[s + 1] - a_.q_start[s], shares = (group_ + heads_ - 1) / heads_;
    return (n + blocks * kBlock - 1) / (blocks * kBlock) * shares * a_.kv_heads;
  }

  // Rows (of d) of the pool that hold a block's positions.
  struct Places {
    int64_t at[kBlock], n;
  };
  void find(Places& p, PageCursor& cursor, int64_t n, int64_t kv_head) const {
    p.n = n;
    for (int64_t j = 0; j < n; ++j) p.at[j] = cursor.next() * a_.kv_heads + kv_head;
  }
  // Pages lie anywhere, so the CPU's own prefetching loses its way.
  void prefetch(const Places& p, int64_t begin, int64_t end) const {
    const Kv *k = static_cast<const Kv*>(a_.k_pages), *v = static_cast<const Kv*>(a_.v_pages);
    for (int64_t j = begin; j < min_of(end, p.n); ++j) {
      for (int64_t c = 0; c < a_.d; c += 64 / static_cast<int64_t>(sizeof(Kv))) {
        __builtin_prefetch(k + p.at[j] * a_.d + c, 0, 2);
        __builtin_prefetch(v + p.at[j] * a_.d + c, 0, 2);
      }
    }
  }

  void gather(const PrefillSpace<M>& space, const Places& p) const {
    const Kv *k = static_cast<const Kv*>(a_.k_pages), *v = static_cast<const Kv*>(a_.v_pages);
    for (int64_t j = 0; j < p.n; ++j) {
      gather_row(space.k_rows + j * h_.dw, k + p.at[j] * a_.d, a_.d, h_.dp);
      gather_row(space.tile.q_rows + j * h_.dw, v + p.at[j] * a_.d, a_.d, h_.dp);
      if constexpr (kScaled) {
        space.k_scale[j] = a_.k_scales[p.at[j]];
        space.v_scale[j] = a_.v_scales[p.at[j]];
      }
    }
    const auto bytes = static_cast<uint64_t>((kBlock - p.n) * h_.dw) * sizeof(typename M::W);
    __builtin_memset(space.k_rows + p.n * h_.dw, 0, bytes);
    __builtin_memset(space.tile.q_rows + p.n * h_.dw, 0, bytes);
    for (int64_t j = p.n; kScaled && j < kBlock; ++j) space.k_scale[j] = space.v_scale[j] = 0;
    turn_values(space.tile, h_, space.v_columns);
  }

  // The block of keys from position `key` on, for the queries at positions `from`...
  void go_through(const PrefillSpace<M>& space, const ForwardTile<M>& t, int64_t key, int64_t from,
                  int64_t lanes) const {
    const float scale_log2 = a_.scale * kLog2E;
    ForwardPiece<M> p{space.k_rows, space.v_columns, 0, kBlock, 0, lanes, 0, space.k_scale, space.v_scale};
    if (key + kBlock - 1 <= from) return forward_piece<M, false, kScaled>(t, h_, p, scale_log2);
    p.keys = kStep;
    for (; p.first < kBlock; p.first += kStep) {
      p.diagonal = key + p.first - from;
      p.lane0 = max_of(0, p.diagonal) / kStep * kStep;
      if (p.lane0 < lanes) forward_piece<M, true, kScaled>(t, h_, p, scale_log2);
    }
  }

  const PagedAttention& a_;
  HeadShape<M> h_;
  int64_t ldo_, ldq_, group_, heads_, blocks_;  // query heads, and blocks of queries, to a task
};

// The tiled sequences of a batch. Every thread of a team calls it, and goes on without waiting for the others.
template <class M, class T, class Kv>
void prefill(const PagedAttention& a, int64_t threads) {
  const Prefill<M, T, Kv> prefill(a, threads);
  const auto tasks_of = [&](int64_t s) { return prefill.tasks_of(s); };
  TaskWalk walk(a.n_seq, tasks_of);
  if (walk.all() == 0) return;
  [[maybe_unused]] const typename M::Session session;
  const int64_t each = round_up(PrefillSpace<M>::bytes(a.d), 64);
  const PrefillSpace<M> space(Carver{align_up(a.workspace) + omp_get_thread_num() * each}, HeadShape<M>(a.d));
#pragma omp for schedule(dynamic, 1) nowait
  for (int64_t i = 0; i < walk.all(); ++i) {
    const auto at = walk.at(i);
    prefill.run(space, at.sequence, at.task);
  }
}

}  // namespace
}  // namespace rw::RW_ISA
