#include "kernels/operands.h"

#include <utility>

namespace rw {
namespace {

constexpr DType kF32 = DType::f32;

// The rows [begin, end).
std::vector<int64_t> span(int64_t begin, int64_t end) {
  std::vector<int64_t> at;
  for (int64_t i = begin; i < end; ++i) at.push_back(i);
  return at;
}

// A matrix of which only the rows `at` are touched: of none, none.
Operand rows_of(const char* field, const void* data, DType t, int64_t cols, std::vector<int64_t> at, int64_t ld = 0) {
  const int64_t n = static_cast<int64_t>(at.size());
  return {.field = field, .data = data, .t = t, .rows = n, .cols = cols, .ld = ld, .at = std::move(at)};
}

std::vector<int64_t> indices(const int32_t* index, int64_t n) {
  return index ? std::vector<int64_t>(index, index + n) : std::vector<int64_t>{};
}

// The local rows of an embedding table that are touched.
template <class Args>
std::vector<int64_t> held_ids(const Args& a) {
  std::vector<int64_t> at;
  for (int64_t r = 0; r < a.rows; ++r) {
    if (a.id[r] >= a.id_begin && a.id[r] < a.id_end) at.push_back(a.id[r] - a.id_begin);
  }
  return at;
}

// Outputs that are added to are inputs as well.
void accumulated(Operands& o, Write write) {
  if (write == Write::accumulate) o.in.insert(o.in.end(), o.out.begin(), o.out.end());
}

// The rows of packed sequences.
template <class Args>
std::vector<int64_t> tokens(const Args& a) {
  return a.n_seq == 0 ? std::vector<int64_t>{} : span(a.cu_seqlens[0], a.cu_seqlens[a.n_seq]);
}

}  // namespace

Operands operands(const Gemm& g) {
  const bool at = g.a_trans == Trans::yes, bt = g.b_trans == Trans::yes;
  Operands o;
  o.out = {{"c", g.c, g.ct, g.m, g.n, g.ldc}};
  accumulated(o, g.write);
  o.in.push_back({"a", g.a, g.t, at ? g.k : g.m, at ? g.m : g.k, g.lda});
  if (!g.b_packed) o.in.push_back({"b", g.b, g.t, bt ? g.n : g.k, bt ? g.k : g.n, g.ldb});
  o.in.push_back({"bias", g.bias, kF32, 1, g.n});
  o.in.push_back({"gelu_slope_of", g.gelu_slope_of, g.ct, g.m, g.n});
  if (g.gelu != g.c) o.out.push_back({"gelu", g.gelu, g.ct, g.m, g.n});
  return o;
}

Operands operands(const GemmPack& g) {
  const bool bt = g.b_trans == Trans::yes;
  const Operand b{.field = "b", .data = g.b, .t = g.src_t, .rows = bt ? g.n : g.k, .cols = bt ? g.k : g.n, .ld = g.ldb};
  Operand packed = b;
  packed.field = "packed", packed.held_as = g.t;
  return {{b}, {packed}};
}

Operands operands(const QuantPack& g) {
  const Operand b{.field = "b", .data = g.b, .t = kF32, .rows = g.n, .cols = g.k, .ld = g.ldb};
  Operand packed = b;
  packed.field = "packed";
  return {{b}, {packed}};
}

Operands operands(const QuantUnpack& g) { return {{}, {{"b", g.b, kF32, g.n, g.k, g.ldb}}}; }

Operands operands(const QuantGemm& g) {
  return {{{"a", g.a, g.t, g.m, g.k, g.lda}, {"bias", g.bias, kF32, 1, g.n}}, {{"c", g.c, g.ct, g.m, g.n, g.ldc}}};
}

Operands operands(const BiasBwd& a) {
  Operands o{{}, {{"d_bias", a.d_bias, kF32, 1, a.n}}};
  accumulated(o, a.write);
  o.in.push_back({"d_y", a.d_y, a.t, a.rows, a.n, a.ld});
  return o;
}

Operands operands(const NormFwd& a) {
  return {{{"x", a.x, a.t, a.rows, a.c},
           {"add", a.add, a.t, a.rows, a.c},
           {"w", a.w, kF32, 1, a.c},
           {"b", a.b, kF32, 1, a.c}},
          {{"sum", a.add ? a.sum : nullptr, a.t, a.rows, a.c},
           {"y", a.y, a.t, a.rows, a.c},
           {"mean", a.mean, kF32, a.rows, 1},
           {"rstd", a.rstd, kF32, a.rows, 1}}};
}

Operands operands(const NormBwd& a) {
  Operands o{{}, {{"d_w", a.d_w, kF32, 1, a.c}, {"d_b", a.d_b, kF32, 1, a.c}}};
  accumulated(o, a.write);
  o.out.insert(o.out.begin(), {"d_x", a.d_x, a.t, a.rows, a.c});
  o.in.push_back({"d_y", a.d_y, a.t, a.rows, a.c});
  o.in.push_back({"x", a.x, a.t, a.rows, a.c});
  o.in.push_back({"d_res", a.d_res, a.t, a.rows, a.c});
  o.in.push_back({"mean", a.mean, kF32, a.rows, 1});
  o.in.push_back({"rstd", a.rstd, kF32, a.rows, 1});
  o.in.push_back({"w", a.w, kF32, 1, a.c});
  return o;
}

Operands operands(const Rope& a) {
  const Operand x{"x", a.x, a.t, a.rows, a.heads * a.d, a.ld};
  return {{x, rows_of("cos", a.cos, kF32, a.d / 2, indices(a.pos, a.rows)),
           rows_of("sin", a.sin, kF32, a.d / 2, indices(a.pos, a.rows))},
          {x}};
}

Operands operands(const AttentionFwd& a) {
  const int64_t q = a.heads * a.d, kv = a.kv_heads * a.d;
  const std::vector<int64_t> at = tokens(a);
  Operand lse = rows_of("lse", a.lse, kF32, a.heads, at);
  lse.minus_infinity = Operand::Low::legal;
  return {{rows_of("q", a.q, a.t, q, at, a.ldq), rows_of("k", a.k, a.t, kv, at, a.ldkv),
           rows_of("v", a.v, a.t, kv, at, a.ldkv)},
          {rows_of("o", a.o, a.t, q, at, a.ldo), lse}};
}

Operands operands(const AttentionBwd& a) {
  const int64_t q = a.heads * a.d, kv = a.kv_heads * a.d;
  const std::vector<int64_t> at = tokens(a);
  Operand lse = rows_of("lse", a.lse, kF32, a.heads, at);
  lse.minus_infinity = Operand::Low::legal;
  return {{rows_of("d_o", a.d_o, a.t, q, at, a.ldo), rows_of("q", a.q, a.t, q, at, a.ldq),
           rows_of("k", a.k, a.t, kv, at, a.ldkv), rows_of("v", a.v, a.t, kv, at, a.ldkv),
           rows_of("o", a.o, a.t, q, at, a.ldo), lse},
          {rows_of("d_q", a.d_q, a.t, q, at, a.ldq), rows_of("d_k", a.d_k, a.t, kv, at, a.ldkv),
           rows_of("d_v", a.d_v, a.t, kv, at, a.ldkv)}};
}

Operands operands(const KvWrite& a) {
  const int64_t cols = a.kv_heads * a.d;
  std::vector<int64_t> from, to;
  for (int64_t r = 0; r < a.rows; ++r) {
    if (a.slot[r] < 0) continue;
    from.push_back(r);
    to.push_back(a.slot[r]);
  }
  Operands o{{rows_of("k", a.k, a.t, cols, from, a.ld), rows_of("v", a.v, a.t, cols, from, a.ld)},
             {rows_of("k_pages", a.k_pages, a.kv_t, cols, to), rows_of("v_pages", a.v_pages, a.kv_t, cols, to)}};
  if (a.kv_t == DType::i8) {
    o.out.push_back(rows_of("k_scales", a.k_scales, kF32, a.kv_heads, to));
    o.out.push_back(rows_of("v_scales", a.v_scales, kF32, a.kv_heads, to));
  }
  return o;
}

Operands operands(const PagedAttention& a) {
  const int64_t q = a.heads * a.d, kv = a.kv_heads * a.d;
  std::vector<int64_t> slots;
  for (int64_t s = 0; s < a.n_seq; ++s) {
    if (a.q_start[s] == a.q_start[s + 1]) continue;
    for (int64_t i = 0; i < a.context_len[s]; ++i)
      slots.push_back(a.page_table[s * a.max_pages + i / a.page_tokens] * a.page_tokens + i % a.page_tokens);
  }
  const std::vector<int64_t> at = a.n_seq == 0 ? std::vector<int64_t>{} : span(a.q_start[0], a.q_start[a.n_seq]);
  Operands o{{rows_of("q", a.q, a.t, q, at, a.ldq), rows_of("k_pages", a.k_pages, a.kv_t, kv, slots),
              rows_of("v_pages", a.v_pages, a.kv_t, kv, slots)},
             {rows_of("o", a.o, a.t, q, at, a.ldo)}};
  if (a.kv_t == DType::i8) {
    o.in.push_back(rows_of("k_scales", a.k_scales, kF32, a.kv_heads, slots));
    o.in.push_back(rows_of("v_scales", a.v_scales, kF32, a.kv_heads, slots));
  }
  return o;
}

Operands operands(const GeluFwd& a) { return {{{"x", a.x, a.t, 1, a.n}}, {{"y", a.y, a.t, 1, a.n}}}; }

Operands operands(const GeluBwd& a) {
  return {{{"d_y", a.d_y, a.t, 1, a.n}, {"x", a.x, a.t, 1, a.n}}, {{"d_x", a.d_x, a.t, 1, a.n}}};
}

Operands operands(const SwigluFwd& a) { return {{{"x", a.x, a.t, a.rows, 2 * a.f}}, {{"y", a.y, a.t, a.rows, a.f}}}; }

Operands operands(const SwigluBwd& a) {
  return {{{"d_y", a.d_y, a.t, a.rows, a.f}, {"x", a.x, a.t, a.rows, 2 * a.f}}, {{"d_x", a.d_x, a.t, a.rows, 2 * a.f}}};
}

Operands operands(const EmbeddingFwd& a) {
  return {{rows_of("table", a.table, a.table_t, a.c, held_ids(a)),
           rows_of("pos_table", a.pos_table, kF32, a.c, indices(a.pos_table ? a.pos : nullptr, a.rows))},
          {{"x", a.x, a.t, a.rows, a.c}}};
}

Operands operands(const EmbeddingBwd& a) {
  Operands o{{},
             {rows_of("d_table", a.d_table, kF32, a.c, held_ids(a)),
              rows_of("d_pos_table", a.d_pos_table, kF32, a.c, indices(a.d_pos_table ? a.pos : nullptr, a.rows))}};
  accumulated(o, Write::accumulate);
  o.in.push_back({"d_x", a.d_x, a.t, a.rows, a.c});
  return o;
}

Operands operands(const CrossEntropyPart& a) {
  Operand logits{"logits", a.logits, a.t, a.rows, a.v, a.ld}, part{"part", a.part, kF32, a.rows, 3};
  logits.minus_infinity = part.minus_infinity = Operand::Low::legal;
  return {{logits}, {part}};
}

Operands operands(const CrossEntropyFinish& a) {
  Operand logits{"logits", a.logits, a.t, a.rows, a.v, a.ld}, parts{"parts", a.parts, kF32, a.n_parts * a.rows, 3};
  Operands o{{}, {{"loss", a.loss, kF32, a.rows, 1}}};
  if (a.d_scale != 0) o.out.push_back(logits);
  logits.minus_infinity = parts.minus_infinity = Operand::Low::legal;
  o.in = {logits, parts, {"d_scale", &a.d_scale, kF32, 1, 1}};
  return o;
}

// Of logits that are not finite the op itself tells.
Operands operands(const SampleScan&) { return {}; }

Operands operands(const AdamW& a) {
  Operands o{{}, {{"p", a.p, kF32, 1, a.n}, {"m", a.m, kF32, 1, a.n}, {"v", a.v, kF32, 1, a.n}}};
  accumulated(o, Write::accumulate);
  o.in.push_back({"g", a.g, kF32, 1, a.n});
  o.in.push_back({"grad_scale", &a.grad_scale, kF32, 1, 1});
  return o;
}

Operands operands(const SumSquares& a) {
  return {{{"x", a.x, kF32, 1, a.n}}, {{"partial", a.partial, DType::f64, 1, (a.n + a.block - 1) / a.block}}};
}

Operands operands(const Cast& a) { return {{{"x", a.x, a.xt, 1, a.n}}, {{"y", a.y, a.yt, 1, a.n}}}; }

Operands operands(const Add& a) {
  return {{{"a", a.a, a.t, 1, a.n}, {"b", a.b, a.t, 1, a.n}}, {{"y", a.y, a.t, 1, a.n}}};
}

Operands operands(const Scale& a) {
  const Operand y{"y", a.y, a.t, 1, a.n};
  return {{y, {"s", &a.s, kF32, 1, 1}}, {y}};
}

Operands operands(const Zero&) { return {}; }

Operands operands(const Read& a) { return {{{"device", a.device, a.t, 1, a.n}}, {{"host", a.host, a.t, 1, a.n}}}; }

Operands operands(const Upload&) { return {}; }

}  // namespace rw
