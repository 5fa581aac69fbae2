// The forward of blockwise attention (Dao 2023, FlashAttention-2): for a block of 64 queries, over blocks of keys,
//   S^T = K Q^T;  m' = max(m, max S);  P^T = exp(S^T - m');
//   l = l exp(m - m') + sum P;  O^T = O^T exp(m - m') + V^T P^T.
// Everything stands transposed, a query to a lane, so that maxima and sums over keys are plain vector operations.
// Keys are taken in blocks of 64 from the sequence's start; the block on the diagonal is cut into pieces of 32 keys,
// each for the queries from its first key on. A result thus depends on its own sequence alone.
#pragma once
#include <omp.h>

#include "kernels/cpu/attention_workspace.h"

namespace rw::RW_ISA {
namespace {

constexpr float kLog2E = 1.44269504f, kLn2 = 0.693147181f;
constexpr float kMasked = -1e30f;  // finite: inf - inf would be NaN

// What a block of queries of one head keeps while it goes through its keys.
template <class M>
struct QueryState {
  using W = typename M::W;
  W* q_columns;  // (dw, 64): B operand
  float* o;      // (dp, 64)
  float* max;    // (64), in units of log2
  float* sum;    // (64)

  QueryState(Carver& c, const HeadShape<M>& h)
      : q_columns(c.take<W>(h.rows_words())),
        o(c.take<float>(h.dp * kBlock)),
        max(c.take<float>(kBlock)),
        sum(c.take<float>(kBlock)) {}
};

// Workspace of one thread.
template <class M>
struct ForwardTile : QueryState<M> {
  using W = typename M::W;
  W* q_rows;      // (64, dw)
  float* s;       // (64 keys, 64 queries)
  W* p;           // (64/kPair, 64): B operand; f32 has it in the place of s, bf16 after it
  float* o_rows;  // (64, dp)

  ForwardTile(Carver& c, const HeadShape<M>& h)
      : QueryState<M>(c, h),
        q_rows(c.take<W>(h.rows_words())),
        s(c.take<float>(kBlock * kBlock)),
        p(M::kPair == 1 ? reinterpret_cast<W*>(s) : c.take<W>(kBlock * kBlock / M::kPair)),
        o_rows(c.take<float>(h.dp * kBlock)) {}
};

// The whole workspace of a forward call over `tokens` tokens.
template <class M>
struct ForwardSpace {
  using W = typename M::W;
  int64_t* first_block;  // (n_seq+1) blocks of the sequences before
  W* k_rows;             // per (block, kv head): (64, dw)
  W* v_columns;          // per (block, kv head): (dp, 64/kPair)
  Carver tiles;

  ForwardSpace(Carver c, const HeadShape<M>& h, int64_t tokens, int64_t n_seq, int64_t kv_heads) {
    const int64_t blocks = (tokens / kBlock + n_seq) * kv_heads;  // at most one partial block a sequence
    first_block = c.take<int64_t>(n_seq + 1);
    k_rows = c.take<W>(blocks * h.rows_words());
    v_columns = c.take<W>(blocks * h.columns_words());
    tiles = c;
  }
  static int64_t bytes(int64_t d, int64_t tokens, int64_t n_seq, int64_t kv_heads, int64_t threads) {
    const HeadShape<M> h(d);
    Carver tile;
    ForwardTile<M>(tile, h);
    return ForwardSpace(Carver{}, h, tokens, n_seq, kv_heads).tiles.used + threads * tile.used + 64;
  }
};

// Keys [first, first + keys) of a block of 64 (k_rows, v_columns), for the lanes [lane0, lanes). A diagonal piece's key
// first + i is seen by the lanes from diagonal + i on. Of whole numbers, the block's keys and values have scales.
template <class M>
struct ForwardPiece {
  const typename M::W *k_rows, *v_columns;
  int64_t first, keys, lane0, lanes;
  int64_t diagonal = 0;
  const float *k_scale = nullptr, *v_scale = nullptr;  // (64)
};

// Softmax over one more piece in t.s: scores to P, running max and sum, and O scaled to the new maximum.
template <class M, bool kDiagonal, bool kScaled>
void online_softmax(const ForwardTile<M>& t, const HeadShape<M>& h, const ForwardPiece<M>& piece, float scale_log2) {
  const int64_t keys = piece.keys, lane0 = piece.lane0, lanes = piece.lanes;
  alignas(64) float corrections[kBlock];
  bool rescale = false;
  for (int64_t lane = lane0; lane < lanes; lane += kW) {
    vf reach{};  // keys of this piece that a lane sees, less one
    if constexpr (kDiagonal) {
      for (int i = 0; i < kW; ++i) reach[i] = static_cast<float>(lane - piece.diagonal + i);
    }
    const auto score = [&](int64_t key) __attribute__((always_inline)) {
      const float factor = kScaled ? scale_log2 * piece.k_scale[piece.first + key] : scale_log2;
      const vf s = load(t.s + key * kBlock + lane) * factor;
      if constexpr (kDiagonal) return reach >= static_cast<float>(key) ? s : splat(kMasked);
      return s;
    };
    const vf old = load(t.max + lane);
    vf m = old, m1 = old;
    for (int64_t key = 0; key < keys; key += 2) {
      m = vmax(m, score(key));
      m1 = vmax(m1, score(key + 1));
    }
    m = vmax(m, m1);
    const vf correction = exp2_negative<M::kExpTerms>(old - m);
    store(t.max + lane, m);
    store(corrections + lane, correction);
    for (int i = 0; i < kW; ++i) rescale |= correction[i] != 1.0f;

    vf sum0{}, sum1{};
    for (int64_t key = 0; key < keys; key += 2) {
      vf p0 = exp2_negative<M::kExpTerms>(score(key) - m), p1 = exp2_negative<M::kExpTerms>(score(key + 1) - m);
      if constexpr (kDiagonal) {
        p0 = reach >= static_cast<float>(key) ? p0 : vf{};
        p1 = reach >= static_cast<float>(key + 1) ? p1 : vf{};
      }
      sum0 += p0;
      sum1 += p1;
      if constexpr (kScaled) {
        p0 *= piece.v_scale[piece.first + key];
        p1 *= piece.v_scale[piece.first + key + 1];
      }
      M::put_b(t.p, kBlock, key, lane, p0, p1);
    }
    store(t.sum + lane, load(t.sum + lane) * correction + (sum0 + sum1));
  }
  if (!rescale) return;
  for (int64_t i = 0; i < h.dp; ++i) {
    float* o = t.o + i * kBlock;
    for (int64_t lane = lane0; lane < lanes; lane += kW) store(o + lane, load(o + lane) * load(corrections + lane));
  }
}

template <class M, bool kDiagonal, bool kScaled = false>
void forward_piece(const ForwardTile<M>& t, const HeadShape<M>& h, const ForwardPiece<M>& p, float scale_log2) {
  using P = Product<typename M::W>;
  const int64_t n = p.lanes - p.lane0, pair = M::kPair;
  M::multiply(
      P{t.s + p.lane0, kBlock, p.k_rows + p.first * h.dw, h.dw, t.q_columns + p.lane0, kBlock, p.keys, n, h.dw});
  online_softmax<M, kDiagonal, kScaled>(t, h, p, scale_log2);
  M::multiply_add(P{t.o + p.lane0, kBlock, p.v_columns + p.first / pair, kBlock / pair, t.p + p.lane0, kBlock, h.dp, n,
                    p.keys / pair});
}

// V as columns, from the 64 rows in t.q_rows.
template <class M>
void turn_values(const ForwardTile<M>& t, const HeadShape<M>& h, typename M::W* v_columns) {
  auto* paired = reinterpret_cast<typename M::W*>(t.o_rows);  // (64/kPair, dp) words
  M::pair_rows(paired, t.q_rows, kBlock, h.dp);
  transpose_words(v_columns, kBlock / M::kPair, paired, h.dp, kBlock / M::kPair, h.dp);
}

// Queries q(queries, d), row stride ld, into t, which has seen no keys yet; `lanes` is a multiple of kStep.
template <class M, class T>
void start_queries(const ForwardTile<M>& t, const HeadShape<M>& h, const T* q, int64_t ld, int64_t queries,
                   int64_t lanes) {
  M::load_rows(t.q_rows, q, ld, queries, lanes, h.d, h.dp);
  transpose_words(t.q_columns, kBlock, t.q_rows, h.dw, lanes, h.dw);
  for (int64_t j = 0; j < h.dp * kBlock; j += kW) store(t.o + j, vf{});
  for (int64_t lane = 0; lane < kBlock; lane += kW) {
    store(t.max + lane, splat(kMasked));
    store(t.sum + lane, vf{});
  }
}

// What t has seen, to o(queries, d), row stride ld.
template <class M, class T>
void finish_queries(const ForwardTile<M>& t, const HeadShape<M>& h, T* o, int64_t ld, int64_t queries, int64_t lanes) {
  for (int64_t lane = 0; lane < lanes; lane += kW) store(t.sum + lane, 1.0f / load(t.sum + lane));
  for (int64_t j = 0; j < h.dp; ++j) {
    for (int64_t lane = 0; lane < lanes; lane += kW)
      store(t.o + j * kBlock + lane, load(t.o + j * kBlock + lane) * load(t.sum + lane));
  }
  transpose_words(t.o_rows, h.dp, t.o, kBlock, h.dp, lanes);
  store_rows(o, ld, t.o_rows, h.dp, queries, h.d, 1.0f);
}

template <class M, class T>
struct ForwardRun {
  const AttentionFwd& a;
  HeadShape<M> h;
  ForwardSpace<M> space;
  int64_t ldo, ldq, ldkv;

  ForwardRun(const AttentionFwd& args)
      : a(args),
        h(args.d),
        space(Carver{align_up(args.workspace)}, h, args.cu_seqlens[args.n_seq] - args.cu_seqlens[0], args.n_seq,
              args.kv_heads),
        ldo(args.ldo == 0 ? args.heads * args.d : args.ldo),
        ldq(args.ldq == 0 ? args.heads * args.d : args.ldq),
        ldkv(args.ldkv == 0 ? args.kv_heads * args.d : args.ldkv) {
    int64_t blocks = 0;
    for (int64_t s = 0; s < a.n_seq; ++s) {
      space.first_block[s] = blocks;
      blocks += (length(s) + kBlock - 1) / kBlock;
    }
    space.first_block[a.n_seq] = blocks;
  }

  int64_t length(int64_t s) const { return a.cu_seqlens[s + 1] - a.cu_seqlens[s]; }
  int64_t blocks() const { return space.first_block[a.n_seq]; }
  int64_t sequence_of(int64_t block) const {  // the last s with first_block[s] <= block
    int64_t low = 0, high = a.n_seq;
    while (high - low > 1) {
      const int64_t mid = (low + high) / 2;
      (space.first_block[mid] <= block ? low : high) = mid;
    }
    return low;
  }
  // Where (sequence, block, kv head) is: a head's blocks lie one after the other.
  int64_t place(int64_t s, int64_t block, int64_t kv_head) const {
    const int64_t first = space.first_block[s];
    return first * a.kv_heads + kv_head * (space.first_block[s + 1] - first) + block;
  }

  ForwardTile<M> tile(int64_t thread) const {
    Carver size, c = space.tiles;
    ForwardTile<M>(size, h);
    c.used += thread * size.used;
    return ForwardTile<M>(c, h);
  }

  // Task `i` of blocks() * kv_heads: pack one block of keys and values.
  void pack(const ForwardTile<M>& t, int64_t i) const {
    const int64_t kv_head = i % a.kv_heads, global = i / a.kv_heads, s = sequence_of(global);
    const int64_t block = global - space.first_block[s], at = place(s, block, kv_head);
    const int64_t offset = (a.cu_seqlens[s] + block * kBlock) * ldkv + kv_head * a.d;
    const int64_t keys = min_of(kBlock, length(s) - block * kBlock);
    M::load_rows(space.k_rows + at * h.rows_words(), static_cast<const T*>(a.k) + offset, ldkv, keys, kBlock, h.d,
                 h.dp);
    M::load_rows(t.q_rows, static_cast<const T*>(a.v) + offset, ldkv, keys, kBlock, h.d, h.dp);
    turn_values(t, h, space.v_columns + at * h.columns_words());
  }

  // Task `i` of blocks() * heads: one block of queries of one head. Tasks that share keys and values are neighbours,
  // and a head's longest comes first.
  void attend(const ForwardTile<M>& t, int64_t i) const {
    const int64_t s = sequence_of(i / a.heads), first = space.first_block[s];
    const int64_t n_blocks = space.first_block[s + 1] - first, in_sequence = i - first * a.heads;
    const int64_t head = in_sequence / n_blocks, block = n_blocks - 1 - in_sequence % n_blocks;
    const int64_t row = a.cu_seqlens[s] + block * kBlock, queries = min_of(kBlock, length(s) - block * kBlock);
    const int64_t lanes = round_up(queries, kStep), at = place(s, 0, head / (a.heads / a.kv_heads));
    const float scale_log2 = a.scale * kLog2E;

    start_queries(t, h, static_cast<const T*>(a.q) + row * ldq + head * a.d, ldq, queries, lanes);
    const typename M::W *k = space.k_rows + at * h.rows_words(), *v = space.v_columns + at * h.columns_words();
    for (int64_t j = 0; j < block; ++j, k += h.rows_words(), v += h.columns_words())
      forward_piece<M, false>(t, h, {k, v, 0, kBlock, 0, lanes}, scale_log2);
    for (int64_t j = 0; j < lanes; j += kStep) forward_piece<M, true>(t, h, {k, v, j, kStep, j, lanes, j}, scale_log2);

    for (int64_t lane = 0; lane < lanes; lane += kW) {
      const vf lse = load(t.max + lane) * kLn2 + vlog(load(t.sum + lane));
      store(t.max + lane, lse);
    }
    finish_queries(t, h, static_cast<T*>(a.o) + row * ldo + head * a.d, ldo, queries, lanes);
    for (int64_t r = 0; r < queries; ++r) a.lse[(row + r) * a.heads + head] = t.max[r];
  }
};

template <class M, class T>
void forward(const AttentionFwd& a, Stream stream) {
  if (a.n_seq == 0 || a.cu_seqlens[a.n_seq] == a.cu_seqlens[0]) return;
  const ForwardRun<M, T> run(a);
#pragma omp parallel num_threads(stream.threads)
  {
    [[maybe_unused]] const typename M::Session session;
    const ForwardTile<M> tile = run.tile(omp_get_thread_num());
    const int64_t packs = run.blocks() * a.kv_heads, tasks = run.blocks() * a.heads;
#pragma omp for schedule(dynamic, 4)
    for (int64_t i = 0; i < packs; ++i) run.pack(tile, i);
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < tasks; ++i) run.attend(tile, i);
  }
}

}  // namespace
}  // namespace rw::RW_ISA
