// The backward of blockwise attention (Dao 2023), with P recomputed from the forward's log-sum-exp. For a block of 64
// queries of one head, over blocks of keys, transposed as in the forward (keys down, a query to a lane):
//   P^T = exp(scale K Q^T - lse);  dP^T = V dO^T;  dS^T = P^T (dP^T - D) with D = rowsum(dO O);
//   dV += P^T dO;  dK += dS^T Q;  dQ^T += K^T dS^T;  and `scale` on dK and dQ at the end.
// A task is one kv head of one sequence; it goes through its query heads and their blocks in order, so that sums have
// one order whatever the number of threads.
#pragma once
#include <initializer_list>

#include "kernels/cpu/attention_forward.h"

namespace rw::RW_ISA {
namespace {

// Workspace of one thread for sequences of up to `tokens` tokens.
template <class M>
struct BackwardTile {
  using W = typename M::W;
  // The kv head, by blocks of 64 keys.
  W *k_rows, *v_rows;  // (64, dw) each
  W* k_columns;        // (dp, 64/kPair)
  float *d_k, *d_v;    // (64, dp)
  // The block of queries.
  W *q_rows, *do_rows;        // (64, dw)
  W *q_columns, *do_columns;  // (dw, 64): B operands that sum over D
  W *q_paired, *do_paired;    // (64/kPair, dp): B operands that sum over queries
  float* d_q;                 // (dp, 64)
  float* d_q_rows;            // (64, dp)
  float* lse;                 // (64) in units of log2
  float* d;                   // (64)
  // The block of both, keys down.
  float *s, *d_p;  // (64, 64)
  W *p, *d_s;      // (64, 64/kPair): A operands
  W* d_s_paired;   // (64/kPair, 64): B operand

  BackwardTile(Carver& c, const HeadShape<M>& h, int64_t tokens) {
    const int64_t blocks = (tokens + kBlock - 1) / kBlock, square = kBlock * kBlock;
    for (W** w : {&k_rows, &v_rows, &k_columns}) *w = c.take<W>(blocks * h.rows_words());
    for (float** f : {&d_k, &d_v}) *f = c.take<float>(blocks * kBlock * h.dp);
    for (W** w : {&q_rows, &do_rows, &q_columns, &do_columns, &q_paired, &do_paired}) *w = c.take<W>(h.rows_words());
    for (float** f : {&d_q, &d_q_rows}) *f = c.take<float>(kBlock * h.dp);
    for (float** f : {&lse, &d}) *f = c.take<float>(kBlock);
    for (float** f : {&s, &d_p}) *f = c.take<float>(square);
    if constexpr (M::kPair == 1) {  // in place: one layout serves all
      p = s;
      d_s = d_s_paired = d_p;
    } else {
      for (W** w : {&p, &d_s, &d_s_paired}) *w = c.take<W>(square / M::kPair);
    }
  }
};

// The whole workspace of a backward call.
template <class M>
struct BackwardSpace {
  int64_t* bucket;   // (blocks of the longest + 2), scratch of the sort
  int64_t* by_size;  // (n_seq) sequences, longest first
  Carver tiles;

  BackwardSpace(Carver c, int64_t tokens, int64_t n_seq) {
    bucket = c.take<int64_t>(tokens / kBlock + 3);
    by_size = c.take<int64_t>(n_seq);
    tiles = c;
  }
  static int64_t bytes(int64_t d, int64_t tokens, int64_t n_seq, int64_t threads) {
    Carver tile;
    BackwardTile<M>(tile, HeadShape<M>(d), tokens);
    return BackwardSpace(Carver{}, tokens, n_seq).tiles.used + threads * tile.used + 64;
  }
};

// From the scores and dP of `keys` keys to P and dS, for the query lanes [lane0, lanes).
template <class M, bool kDiagonal>
void softmax_bwd(const BackwardTile<M>& t, int64_t keys, int64_t lane0, int64_t lanes, float scale_log2) {
  for (int64_t lane = lane0; lane < lanes; lane += kW) {
    vf reach{};
    if constexpr (kDiagonal) {
      for (int i = 0; i < kW; ++i) reach[i] = static_cast<float>(lane - lane0 + i);
    }
    const vf lse = load(t.lse + lane), d = load(t.d + lane);
    const auto probability = [&](int64_t key) __attribute__((always_inline)) {
      const vf p = exp2_negative<M::kExpTerms>(load(t.s + key * kBlock + lane) * scale_log2 - lse);
      if constexpr (kDiagonal) return reach >= static_cast<float>(key) ? p : vf{};
      return p;
    };
    for (int64_t key = 0; key < keys; key += 2) {
      const vf p0 = probability(key), p1 = probability(key + 1);
      const vf g0 = p0 * (load(t.d_p + key * kBlock + lane) - d),
               g1 = p1 * (load(t.d_p + (key + 1) * kBlock + lane) - d);
      M::put_a(t.p, kBlock / M::kPair, key, lane, p0, p1);
      M::put_a(t.d_s, kBlock / M::kPair, key, lane, g0, g1);
      if constexpr (M::kPair > 1) M::put_b(t.d_s_paired, kBlock, key, lane, g0, g1);
    }
  }
}

// Keys [first, first + keys) of block `block` against the query lanes [lane0, lanes).
struct BackwardPiece {
  int64_t block, first, keys, lane0, lanes;
};
template <class M, bool kDiagonal>
void backward_piece(const BackwardTile<M>& t, const HeadShape<M>& h, const BackwardPiece& x, float scale_log2) {
  using P = Product<typename M::W>;
  constexpr int64_t pair = M::kPair, ldp = kBlock / pair;
  const int64_t n = x.lanes - x.lane0, row = x.block * kBlock + x.first, lane = x.lane0;
  M::multiply(P{t.s + lane, kBlock, t.k_rows + row * h.dw, h.dw, t.q_columns + lane, kBlock, x.keys, n, h.dw});
  M::multiply(P{t.d_p + lane, kBlock, t.v_rows + row * h.dw, h.dw, t.do_columns + lane, kBlock, x.keys, n, h.dw});
  softmax_bwd<M, kDiagonal>(t, x.keys, lane, x.lanes, scale_log2);
  const int64_t from = lane / pair;  // the word, or paired row, of the first query
  M::multiply_add(
      P{t.d_v + row * h.dp, h.dp, t.p + from, ldp, t.do_paired + from * h.dp, h.dp, x.keys, h.dp, n / pair});
  M::multiply_add(
      P{t.d_k + row * h.dp, h.dp, t.d_s + from, ldp, t.q_paired + from * h.dp, h.dp, x.keys, h.dp, n / pair});
  const auto* k_columns = t.k_columns + x.block * h.columns_words() + x.first / pair;
  M::multiply_add(P{t.d_q + lane, kBlock, k_columns, ldp, t.d_s_paired + lane, kBlock, h.dp, n, x.keys / pair});
}

// sum of x*y over d elements
template <class T>
float dot(const T* x, const T* y, int64_t d) {
  vf sum{};
  int64_t c = 0;
  for (; c + kW <= d; c += kW) sum += load(x + c) * load(y + c);
  if (c < d) sum += load_n(x + c, d - c) * load_n(y + c, d - c);
  return hsum(sum);
}

template <class M, class T>
struct BackwardRun {
  const AttentionBwd& a;
  HeadShape<M> h;
  int64_t tokens;
  BackwardSpace<M> space;
  int64_t ldo, ldq, ldkv;

  BackwardRun(const AttentionBwd& args)
      : a(args),
        h(args.d),
        tokens(args.cu_seqlens[args.n_seq] - args.cu_seqlens[0]),
        space(Carver{align_up(args.workspace)}, tokens, args.n_seq),
        ldo(args.ldo == 0 ? args.heads * args.d : args.ldo),
        ldq(args.ldq == 0 ? args.heads * args.d : args.ldq),
        ldkv(args.ldkv == 0 ? args.kv_heads * args.d : args.ldkv) {
    // Counting sort by blocks, most first: long sequences start early, so that threads end together.
    const int64_t top = tokens / kBlock + 1;
    for (int64_t i = 0; i < top + 2; ++i) space.bucket[i] = 0;
    for (int64_t s = 0; s < a.n_seq; ++s) ++space.bucket[top - blocks(s) + 1];
    for (int64_t i = 0; i < top + 1; ++i) space.bucket[i + 1] += space.bucket[i];
    for (int64_t s = 0; s < a.n_seq; ++s) space.by_size[space.bucket[top - blocks(s)]++] = s;
  }

  int64_t length(int64_t s) const { return a.cu_seqlens[s + 1] - a.cu_seqlens[s]; }
  int64_t blocks(int64_t s) const { return (length(s) + kBlock - 1) / kBlock; }

  BackwardTile<M> tile(int64_t thread) const {
    Carver size, c = space.tiles;
    BackwardTile<M>(size, h, tokens);
    c.used += thread * size.used;
    return BackwardTile<M>(c, h, tokens);
  }

  void load_keys(const BackwardTile<M>& t, int64_t s, int64_t kv_head) const {
    for (int64_t b = 0; b < blocks(s); ++b) {
      const int64_t offset = (a.cu_seqlens[s] + b * kBlock) * ldkv + kv_head * a.d;
      const int64_t keys = min_of(kBlock, length(s) - b * kBlock), at = b * h.rows_words();
      M::load_rows(t.k_rows + at, static_cast<const T*>(a.k) + offset, ldkv, keys, kBlock, h.d, h.dp);
      M::load_rows(t.v_rows + at, static_cast<const T*>(a.v) + offset, ldkv, keys, kBlock, h.d, h.dp);
      auto* paired = t.q_paired;  // not in use yet
      M::pair_rows(paired, t.k_rows + at, kBlock, h.dp);
      transpose_words(t.k_columns + b * h.columns_words(), kBlock / M::kPair, paired, h.dp, kBlock / M::kPair, h.dp);
    }
    for (int64_t i = 0; i < blocks(s) * kBlock * h.dp; i += kW) {
      store(t.d_k + i, vf{});
      store(t.d_v + i, vf{});
    }
  }

  void load_queries(const BackwardTile<M>& t, int64_t row, int64_t head, int64_t queries, int64_t lanes) const {
    const T* o = static_cast<const T*>(a.o) + row * ldo + head * a.d;
    const T* d_o = static_cast<const T*>(a.d_o) + row * ldo + head * a.d;
    M::load_rows(t.q_rows, static_cast<const T*>(a.q) + row * ldq + head * a.d, ldq, queries, lanes, h.d, h.dp);
    M::load_rows(t.do_rows, d_o, ldo, queries, lanes, h.d, h.dp);
    transpose_words(t.q_columns, kBlock, t.q_rows, h.dw, lanes, h.dw);
    transpose_words(t.do_columns, kBlock, t.do_rows, h.dw, lanes, h.dw);
    M::pair_rows(t.q_paired, t.q_rows, lanes, h.dp);
    M::pair_rows(t.do_paired, t.do_rows, lanes, h.dp);
    for (int64_t r = 0; r < queries; ++r) {
      t.lse[r] = a.lse[(row + r) * a.heads + head] * kLog2E;
      t.d[r] = dot(d_o + r * ldo, o + r * ldo, h.d);
    }
    for (int64_t r = queries; r < lanes; ++r) {  // padding: dO and Q are 0 there, and P is as good as 0
      t.lse[r] = -kMasked;
      t.d[r] = 0;
    }
    for (int64_t i = 0; i < h.dp * kBlock; i += kW) store(t.d_q + i, vf{});
  }

  // Task `i` of n_seq * kv_heads.
  void run(const BackwardTile<M>& t, int64_t i) const {
    const int64_t s = space.by_size[i / a.kv_heads], kv_head = i % a.kv_heads, group = a.heads / a.kv_heads;
    const float scale_log2 = a.scale * kLog2E;
    load_keys(t, s, kv_head);
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      for (int64_t block = 0; block < blocks(s); ++block) {
        const int64_t row = a.cu_seqlens[s] + block * kBlock, queries = min_of(kBlock, length(s) - block * kBlock);
        const int64_t lanes = round_up(queries, kStep);
        load_queries(t, row, head, queries, lanes);
        for (int64_t j = 0; j < block; ++j) backward_piece<M, false>(t, h, {j, 0, kBlock, 0, lanes}, scale_log2);
        for (int64_t j = 0; j < lanes; j += kStep)
          backward_piece<M, true>(t, h, {block, j, kStep, j, lanes}, scale_log2);
        transpose_words(t.d_q_rows, h.dp, t.d_q, kBlock, h.dp, lanes);
        store_rows(static_cast<T*>(a.d_q) + row * ldq + head * a.d, ldq, t.d_q_rows, h.dp, queries, h.d, a.scale);
      }
    }
    const int64_t offset = a.cu_seqlens[s] * ldkv + kv_head * a.d;
    store_rows(static_cast<T*>(a.d_k) + offset, ldkv, t.d_k, h.dp, length(s), h.d, a.scale);
    store_rows(static_cast<T*>(a.d_v) + offset, ldkv, t.d_v, h.dp, length(s), h.d, 1.0f);
  }
};

template <class M, class T>
void backward(const AttentionBwd& a, Stream stream) {
  if (a.n_seq == 0 || a.cu_seqlens[a.n_seq] == a.cu_seqlens[0]) return;
  const BackwardRun<M, T> run(a);
#pragma omp parallel num_threads(stream.threads)
  {
    [[maybe_unused]] const typename M::Session session;
    const BackwardTile<M> tile = run.tile(omp_get_thread_num());
    const int64_t tasks = a.n_seq * a.kv_heads;
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < tasks; ++i) run.run(tile, i);
  }
}

}  // namespace
}  // namespace rw::RW_ISA
