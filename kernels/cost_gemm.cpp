#include "kernels/ops.h"

namespace rw {

// A multiply-add is 2 FLOPs; the additions of bias and c are not counted, as usual. c is read when it is accumulated
// to. GELU beside c is written, the x of a slope is read.
Cost cost(const Gemm& g) {
  const double m = static_cast<double>(g.m), n = static_cast<double>(g.n), k = static_cast<double>(g.k);
  const double element = static_cast<double>(dtype_bytes(g.t)),
               c_bytes = m * n * static_cast<double>(dtype_bytes(g.ct));
  Cost all{
      .flops = 2 * m * n * k,
      .bytes_read = (m * k + k * n) * element + (g.bias ? 4 * n : 0) + (g.write == Write::accumulate ? c_bytes : 0),
      .bytes_written = c_bytes};
  if (g.gelu != nullptr) {
    all.flops += cost(GeluFwd{.n = g.m * g.n, .t = g.ct}).flops;
    all.bytes_written += g.gelu != g.c ? c_bytes : 0;
  }
  if (g.gelu_slope_of != nullptr) {
    all.flops += cost(GeluBwd{.n = g.m * g.n, .t = g.ct}).flops;
    all.bytes_read += c_bytes;
  }
  return all;
}

Cost cost(const GemmPack& g) {
  const double elements = static_cast<double>(g.n) * static_cast<double>(g.k);
  return {.flops = 0,
          .bytes_read = elements * static_cast<double>(dtype_bytes(g.src_t)),
          .bytes_written = elements * static_cast<double>(dtype_bytes(g.t))};
}

namespace {

// Of n rows of k weights with their scales (QuantPack).
double quantised_bytes(QuantBits bits, double n, double k, int64_t group) {
  const double groups = k / static_cast<double>(group);
  return n * (bits == QuantBits::int8 ? k + 2 * groups : k / 2 + groups);
}

}  // namespace

Cost cost(const QuantPack& g) {
  const double n = static_cast<double>(g.n), k = static_cast<double>(g.k);
  return {.flops = 0, .bytes_read = 4 * n * k, .bytes_written = quantised_bytes(g.bits, n, k, g.group)};
}

Cost cost(const QuantUnpack& g) {
  const double n = static_cast<double>(g.n), k = static_cast<double>(g.k);
  return {.flops = n * k, .bytes_read = quantised_bytes(g.bits, n, k, g.group), .bytes_written = 4 * n * k};
}

Cost cost(const QuantGemm& g) {
  const double m = static_cast<double>(g.m), n = static_cast<double>(g.n), k = static_cast<double>(g.k);
  const double a = m * k * static_cast<double>(dtype_bytes(g.t));
  return {.flops = 2 * m * n * k,
          .bytes_read = a + quantised_bytes(g.bits, n, k, g.group) + (g.bias ? 4 * n : 0),
          .bytes_written = m * n * static_cast<double>(dtype_bytes(g.ct))};
}

}  // namespace rw
