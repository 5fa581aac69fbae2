// Prices of attention. A (query, key) pair that may attend costs 2 D for its score and 2 D for its share of the output;
// the softmax is left out, as everywhere in the field. The blockwise backward makes the scores again: five products in
// place of two (Dao et al. 2022).
#include "kernels/ops.h"

namespace rw {
namespace {

double size(DType t) { return static_cast<double>(dtype_bytes(t)); }

// Of one token and kv head in its page.
double scale_bytes(DType kv_t) { return kv_t == DType::i8 ? 4 : 0; }

// The causal half: s^2 / 2 pairs in a sequence of s.
double causal_pairs(const int32_t* cu_seqlens, int64_t n_seq) {
  double pairs = 0;
  for (int64_t i = 0; i < n_seq; ++i) {
    const double s = cu_seqlens[i + 1] - cu_seqlens[i];
    pairs += s * s / 2;
  }
  return pairs;
}

double rows(const int32_t* cu_seqlens, int64_t n_seq) { return n_seq > 0 ? cu_seqlens[n_seq] - cu_seqlens[0] : 0; }

}  // namespace

Cost cost(const AttentionFwd& a) {
  const double d = static_cast<double>(a.d), h = static_cast<double>(a.heads), kv = static_cast<double>(a.kv_heads);
  const double t = rows(a.cu_seqlens, a.n_seq), pairs = causal_pairs(a.cu_seqlens, a.n_seq) * h;
  return {4 * d * pairs, t * d * (h + 2 * kv) * size(a.t), t * h * (d * size(a.t) + 4)};
}

Cost cost(const AttentionBwd& a) {
  const double d = static_cast<double>(a.d), h = static_cast<double>(a.heads), kv = static_cast<double>(a.kv_heads);
  const double t = rows(a.cu_seqlens, a.n_seq), pairs = causal_pairs(a.cu_seqlens, a.n_seq) * h;
  return {10 * d * pairs, t * (d * (3 * h + 2 * kv) * size(a.t) + 4 * h), t * d * (h + 2 * kv) * size(a.t)};
}

Cost cost(const KvWrite& a) {
  const double heads = 2 * static_cast<double>(a.rows * a.kv_heads), d = static_cast<double>(a.d);
  return {0, heads * d * size(a.t) + 8 * static_cast<double>(a.rows), heads * (d * size(a.kv_t) + scale_bytes(a.kv_t))};
}

// Keys and values of a context are read once for all its queries.
Cost cost(const PagedAttention& a) {
  const double d = static_cast<double>(a.d), h = static_cast<double>(a.heads), kv = static_cast<double>(a.kv_heads);
  double pairs = 0, context = 0;
  for (int64_t s = 0; s < a.n_seq; ++s) {
    const double n = a.q_start[s + 1] - a.q_start[s], length = a.context_len[s];
    if (n == 0) continue;
    pairs += n * (length - n) + n * (n + 1) / 2;
    context += length;
  }
  const double t = rows(a.q_start, a.n_seq);
  return {4 * d * h * pairs, t * h * d * size(a.t) + 2 * context * kv * (d * size(a.kv_t) + scale_bytes(a.kv_t)),
          t * h * d * size(a.t)};
}

}  // namespace rw
