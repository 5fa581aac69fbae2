// Prices of the ops that stream over their operands. FLOPs count what the formula asks for; an exponential, a division
// and a square root are one each.
#include "kernels/ops.h"

namespace rw {
namespace {

double size(DType t) { return static_cast<double>(dtype_bytes(t)); }
double product(int64_t a, int64_t b) { return static_cast<double>(a) * static_cast<double>(b); }

}  // namespace

Cost cost(const BiasBwd& a) {
  const double e = product(a.rows, a.n), n = static_cast<double>(a.n);
  return {e, e * size(a.t) + (a.write == Write::accumulate ? 4 * n : 0), 4 * n};
}

Cost cost(const NormFwd& a) {
  const double e = product(a.rows, a.c), rows = static_cast<double>(a.rows), c = static_cast<double>(a.c),
               b = size(a.t);
  const double adds = a.add ? 1 : 0;
  const double stats = a.kind == NormKind::layer ? 2 : 1;
  return {e * ((a.kind == NormKind::layer ? 7 : 4) + adds), e * b * (1 + adds) + 4 * c * (a.b ? 2 : 1),
          e * b * (1 + adds) + 4 * rows * stats};
}

Cost cost(const NormBwd& a) {
  const double e = product(a.rows, a.c), rows = static_cast<double>(a.rows), c = static_cast<double>(a.c),
               b = size(a.t);
  const double stats = a.kind == NormKind::layer ? 2 : 1;
  Cost cost{0, 2 * e * b + 4 * rows * stats, 0};
  if (a.d_x) {
    cost.flops += e * (a.kind == NormKind::layer ? 11 : 8) + (a.d_res ? e : 0);
    cost.bytes_read += 4 * c + (a.d_res ? e * b : 0);
    cost.bytes_written += e * b;
  }
  const double sums = (a.d_w ? 1 : 0) + (a.d_b ? 1 : 0);
  cost.flops += (a.d_w ? 4 * e : 0) + (a.d_b ? e : 0);
  cost.bytes_read += a.write == Write::accumulate ? sums * 4 * c : 0;
  cost.bytes_written += sums * 4 * c;
  return cost;
}

Cost cost(const Rope& a) {
  const double e = product(a.rows, a.heads * a.d);
  return {3 * e, e * size(a.t) + product(a.rows, a.d) * 4 + 4 * static_cast<double>(a.rows), e * size(a.t)};
}

Cost cost(const GeluFwd& a) {
  const double n = static_cast<double>(a.n);
  return {9 * n, n * size(a.t), n * size(a.t)};
}

Cost cost(const GeluBwd& a) {
  const double n = static_cast<double>(a.n);
  return {16 * n, 2 * n * size(a.t), n * size(a.t)};
}

Cost cost(const SwigluFwd& a) {
  const double e = product(a.rows, a.f);
  return {5 * e, 2 * e * size(a.t), e * size(a.t)};
}

Cost cost(const SwigluBwd& a) {
  const double e = product(a.rows, a.f);
  return {11 * e, 3 * e * size(a.t), 2 * e * size(a.t)};
}

Cost cost(const EmbeddingFwd& a) {
  const double e = product(a.rows, a.c), rows = static_cast<double>(a.rows);
  // At most: rows of another range are not read.
  const double read = e * size(a.table_t) + 4 * rows + (a.pos_table ? 4 * e + 4 * rows : 0);
  return {a.pos_table ? e : 0, read, e * size(a.t)};
}

Cost cost(const EmbeddingBwd& a) {
  const double e = product(a.rows, a.c), rows = static_cast<double>(a.rows);
  const double tables = (a.d_table ? 1 : 0) + (a.d_pos_table ? 1 : 0);
  return {tables * e, e * size(a.t) + tables * (4 * e + 4 * rows), tables * 4 * e};
}

Cost cost(const CrossEntropyPart& a) {
  const double e = product(a.rows, a.v), rows = static_cast<double>(a.rows);
  return {4 * e, e * size(a.t) + 4 * rows, 12 * rows};
}

// Without a gradient the logits are not touched.
Cost cost(const CrossEntropyFinish& a) {
  const double e = a.d_scale != 0 ? product(a.rows, a.v) : 0, rows = static_cast<double>(a.rows);
  return {3 * e, e * size(a.t) + (12 * static_cast<double>(a.n_parts) + 4) * rows, e * size(a.t) + 4 * rows};
}

Cost cost(const SampleScan& a) {
  const double e = product(a.n, a.v), n = static_cast<double>(a.n);
  return {4 * e, 4 * e + n * double{sizeof(SampleAsk)},
          n * (double{sizeof(SampleFacts)} + 8 * static_cast<double>(a.most_best))};
}

Cost cost(const AdamW& a) {
  const double n = static_cast<double>(a.n);
  return {14 * n, 16 * n, 12 * n};
}

Cost cost(const SumSquares& a) {
  const double n = static_cast<double>(a.n);
  return {2 * n, 4 * n, 8 * static_cast<double>((a.n + a.block - 1) / a.block)};
}

Cost cost(const Cast& a) {
  const double n = static_cast<double>(a.n);
  return {0, n * size(a.xt), n * size(a.yt)};
}

Cost cost(const Add& a) {
  const double n = static_cast<double>(a.n);
  return {n, 2 * n * size(a.t), n * size(a.t)};
}

Cost cost(const Scale& a) {
  const double n = static_cast<double>(a.n);
  return {n, n * size(a.t), n * size(a.t)};
}

Cost cost(const Zero& a) { return {0, 0, static_cast<double>(a.bytes)}; }

Cost cost(const Read& a) {
  const double bytes = static_cast<double>(a.n) * size(a.t);
  return {0, bytes, bytes};
}

Cost cost(const Upload& a) {
  const double bytes = a.device == a.host ? 0 : static_cast<double>(a.bytes);
  return {0, bytes, bytes};
}

}  // namespace rw
