// The table that computes nothing: a model run on it leaves behind what it would have cost.
#include <algorithm>

#include "kernels/gemm_parts.h"
#include "kernels/op_log.h"
#include "libcore/base/check.h"

namespace rw {
namespace {

OpLog& log_of(Stream s) {
  CHECK(s.log, "meta ops: the stream has no log");
  return *s.log;
}

const Ops& backend_of(Stream s) {
  const OpLog& log = log_of(s);
  CHECK(log.backend, "meta ops: the log names no backend to take sizes from");
  return *log.backend;
}

int64_t rows_of(const int32_t* starts, int64_t n_seq) { return n_seq > 0 ? starts[n_seq] - starts[0] : 0; }

// What OpShape says of each op. Ops over a flat run of elements are one column of them.
OpShape shape(const Gemm& a) { return {a.m, a.n, a.k}; }
OpShape shape(const GemmPack& a) { return {a.n, a.k, 0}; }
OpShape shape(const QuantPack& a) { return {a.n, a.k, 0}; }
OpShape shape(const QuantUnpack& a) { return {a.n, a.k, 0}; }
OpShape shape(const QuantGemm& a) { return {a.m, a.n, a.k}; }
OpShape shape(const BiasBwd& a) { return {a.rows, a.n, 0}; }
OpShape shape(const NormFwd& a) { return {a.rows, a.c, 0}; }
OpShape shape(const NormBwd& a) { return {a.rows, a.c, 0}; }
OpShape shape(const Rope& a) { return {a.rows, a.heads * a.d, 0}; }
OpShape shape(const AttentionFwd& a) { return {rows_of(a.cu_seqlens, a.n_seq), a.heads, a.d}; }
OpShape shape(const AttentionBwd& a) { return {rows_of(a.cu_seqlens, a.n_seq), a.heads, a.d}; }
OpShape shape(const KvWrite& a) { return {a.rows, 2 * a.kv_heads * a.d, 0}; }
OpShape shape(const PagedAttention& a) { return {rows_of(a.q_start, a.n_seq), a.heads, a.d}; }
OpShape shape(const GeluFwd& a) { return {a.n, 1, 0}; }
OpShape shape(const GeluBwd& a) { return {a.n, 1, 0}; }
OpShape shape(const SwigluFwd& a) { return {a.rows, a.f, 0}; }
OpShape shape(const SwigluBwd& a) { return {a.rows, a.f, 0}; }
OpShape shape(const EmbeddingFwd& a) { return {a.rows, a.c, 0}; }
OpShape shape(const EmbeddingBwd& a) { return {a.rows, a.c, 0}; }
OpShape shape(const CrossEntropyPart& a) { return {a.rows, a.v, 0}; }
OpShape shape(const CrossEntropyFinish& a) { return {a.rows, a.v, 0}; }
OpShape shape(const SampleScan& a) { return {a.n, a.v, 0}; }
OpShape shape(const AdamW& a) { return {a.n, 1, 0}; }
OpShape shape(const SumSquares& a) { return {a.n, 1, 0}; }
OpShape shape(const Cast& a) { return {a.n, 1, 0}; }
OpShape shape(const Add& a) { return {a.n, 1, 0}; }
OpShape shape(const Scale& a) { return {a.n, 1, 0}; }
OpShape shape(const Zero& a) { return {a.bytes, 1, 0}; }
OpShape shape(const Read& a) { return {a.n, 1, 0}; }
OpShape shape(const Upload& a) { return {a.bytes, 1, 0}; }

template <class Args>
void count(const char* op, const Args& a, Stream s) {
  OpLog& log = log_of(s);
  const Cost price = cost(a);
  log.count(op, price);
  if (log.calls != nullptr) log.calls->push_back({.op = op, .scope = log.scope, .shape = shape(a), .cost = price});
}

void gemm(const Gemm& g, Stream s) {
  in_parts(
      g, [s](const Gemm& product) { count("gemm", product, s); }, [s](const GeluFwd& a) { count("gelu_fwd", a, s); },
      [s](const GeluBwd& a) { count("gelu_bwd", a, s); });
}

// A packed form that the backend keeps no memory for is not made.
void pack(const GemmPack& a, Stream s) {
  const Ops* backend = log_of(s).backend;
  if (backend == nullptr || backend->packed_bytes(a, s) > 0) count("gemm_pack", a, s);
}

void read_ones(const Read& a, Stream s) {
  count("read", a, s);
  switch (a.t) {
    case DType::f32: std::fill_n(static_cast<float*>(a.host), a.n, 1.0f); break;
    case DType::f64: std::fill_n(static_cast<double*>(a.host), a.n, 1.0); break;
    case DType::i64: std::fill_n(static_cast<int64_t*>(a.host), a.n, int64_t{1}); break;
    default: CHECK(false, "read: f32, f64 and i64 only, found %s", dtype_name(a.t));
  }
}

constexpr Ops kMeta{
    .name = "meta",
    .gemm = gemm,
    .gemm_pack = pack,
    .gemm_workspace = [](const Gemm& a, Stream s) { return backend_of(s).gemm_workspace(a, s); },
    .packed_bytes = [](const GemmPack& a, Stream s) { return backend_of(s).packed_bytes(a, s); },
    .quant_pack = [](const QuantPack& a, Stream s) { count("quant_pack", a, s); },
    .quant_unpack = [](const QuantUnpack& a, Stream s) { count("quant_unpack", a, s); },
    .quant_gemm = [](const QuantGemm& a, Stream s) { count("quant_gemm", a, s); },
    .quant_packed_bytes = [](const QuantPack& a, Stream s) { return backend_of(s).quant_packed_bytes(a, s); },
    .quant_gemm_workspace = [](const QuantGemm& a, Stream s) { return backend_of(s).quant_gemm_workspace(a, s); },
    .bias_bwd = [](const BiasBwd& a, Stream s) { count("bias_bwd", a, s); },
    .norm_fwd = [](const NormFwd& a, Stream s) { count("norm_fwd", a, s); },
    .norm_bwd = [](const NormBwd& a, Stream s) { count("norm_bwd", a, s); },
    .rope = [](const Rope& a, Stream s) { count("rope", a, s); },
    .attention_fwd = [](const AttentionFwd& a, Stream s) { count("attention_fwd", a, s); },
    .attention_bwd = [](const AttentionBwd& a, Stream s) { count("attention_bwd", a, s); },
    .attention_workspace = [](const AttentionBwd& a, Stream s) { return backend_of(s).attention_workspace(a, s); },
    .kv_write = [](const KvWrite& a, Stream s) { count("kv_write", a, s); },
    .paged_attention = [](const PagedAttention& a, Stream s) { count("paged_attention", a, s); },
    .paged_attention_workspace = [](const PagedAttention& a,
                                    Stream s) { return backend_of(s).paged_attention_workspace(a, s); },
    .gelu_fwd = [](const GeluFwd& a, Stream s) { count("gelu_fwd", a, s); },
    .gelu_bwd = [](const GeluBwd& a, Stream s) { count("gelu_bwd", a, s); },
    .swiglu_fwd = [](const SwigluFwd& a, Stream s) { count("swiglu_fwd", a, s); },
    .swiglu_bwd = [](const SwigluBwd& a, Stream s) { count("swiglu_bwd", a, s); },
    .embedding_fwd = [](const EmbeddingFwd& a, Stream s) { count("embedding_fwd", a, s); },
    .embedding_bwd = [](const EmbeddingBwd& a, Stream s) { count("embedding_bwd", a, s); },
    .cross_entropy_part = [](const CrossEntropyPart& a, Stream s) { count("cross_entropy_part", a, s); },
    .cross_entropy_finish = [](const CrossEntropyFinish& a, Stream s) { count("cross_entropy_finish", a, s); },
    .sample_scan = [](const SampleScan& a, Stream s) { count("sample_scan", a, s); },
    .adamw = [](const AdamW& a, Stream s) { count("adamw", a, s); },
    .sum_squares = [](const SumSquares& a, Stream s) { count("sum_squares", a, s); },
    .cast = [](const Cast& a, Stream s) { count("cast", a, s); },
    .add = [](const Add& a, Stream s) { count("add", a, s); },
    .scale = [](const Scale& a, Stream s) { count("scale", a, s); },
    .zero = [](const Zero& a, Stream s) { count("zero", a, s); },
    .read = read_ones,
    .upload = [](const Upload& a, Stream s) { count("upload", a, s); },
};

}  // namespace

const Ops& meta_ops() { return kMeta; }

}  // namespace rw
