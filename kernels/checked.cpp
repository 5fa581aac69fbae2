// The table that runs another one's functions and looks at what they wrote.
#include <string>
#include <vector>

#include "kernels/gemm_parts.h"
#include "kernels/op_log.h"
#include "kernels/operands.h"
#include "libcore/base/check.h"

namespace rw {
namespace {

bool any_bad(const std::vector<Operand>& operands) {
  for (const Operand& o : operands) {
    if (first_bad(o).row >= 0) return true;
  }
  return false;
}

// Whether b_packed holds a value that is not finite. Its layout is the backend's own, so it is asked with a product: a
// row of small numbers (any bad value makes its column's sum bad, no good one can).
bool packed_is_bad(const Gemm& g, const Ops& ops, Stream s) {
  if (!g.b_packed || g.n == 0 || g.k == 0) return false;
  const float small = g.t == DType::f16 ? 0x1p-14f : 0x1p-40f;  // normal in its type
  const int64_t bytes = dtype_bytes(g.t);
  std::vector<char> a(static_cast<size_t>(g.k * bytes));
  std::vector<float> c(static_cast<size_t>(g.n)), wide(static_cast<size_t>(g.k), small);
  ops.cast({.y = a.data(), .x = wide.data(), .n = g.k, .yt = g.t, .xt = DType::f32}, s);
  Gemm probe{.c = c.data(), .a = a.data(), .b_packed = g.b_packed, .m = 1, .n = g.n, .k = g.k, .t = g.t};
  probe.ct = DType::f32;
  std::vector<char> workspace(static_cast<size_t>(ops.gemm_workspace(probe, s)) + 64);
  probe.workspace = workspace.data() + (64 - reinterpret_cast<uintptr_t>(workspace.data()) % 64);
  ops.gemm(probe, s);
  return first_bad({"c", c.data(), DType::f32, 1, g.n}).row >= 0;
}
bool packed_is_bad(const QuantGemm& g, const Ops& ops, Stream s) {
  std::vector<float> b(static_cast<size_t>(g.n * g.k));
  ops.quant_unpack({.b = b.data(), .packed = g.b_packed, .n = g.n, .k = g.k, .bits = g.bits, .group = g.group}, s);
  return first_bad({"b", b.data(), DType::f32, g.n, g.k}).row >= 0;
}
template <class Args>
bool packed_is_bad(const Args&, const Ops&, Stream) {
  return false;
}

template <class Args>
void count(OpLog& log, const char* op, const Args& a) {
  log.count(op, cost(a));
}
void count(OpLog& log, const char* op, const Gemm& g) {
  in_parts(
      g, [&](const Gemm& product) { log.count(op, cost(product)); },
      [&](const GeluFwd& a) { log.count("gelu_fwd", cost(a)); },
      [&](const GeluBwd& a) { log.count("gelu_bwd", cost(a)); });
}

struct Checker {
  OpLog& log;
  const Ops& ops;
  Stream stream;

  explicit Checker(Stream s) : log(log_of(s)), ops(*log.backend), stream(s) {}
  static OpLog& log_of(Stream s) {
    CHECK(s.log && s.log->backend, "checked ops: the stream has no log, or its log no backend");
    return *s.log;
  }

  template <class Args>
  void run(const char* op, void (*f)(const Args&, Stream), const Args& a) const {
    count(log, op, a);
    if (!log.look || !log.first_bad.empty()) return f(a, stream);  // the first is all that is asked for
    const Operands o = operands(a);
    const bool bad_inputs = any_bad(o.in);  // before f: outputs may lie in their place
    f(a, stream);
    for (const Operand& out : o.out) {
      const BadValue bad = first_bad(out);
      if (bad.row < 0) continue;
      log.first_bad = std::string(op) + (log.scope.empty() ? "" : " in ") + log.scope + ": element (row " +
                      std::to_string(bad.row) + ", column " + std::to_string(bad.col) + ") of " + out.field + " is " +
                      bad.what;
      if (bad_inputs || packed_is_bad(a, ops, stream)) log.first_bad += " (its inputs were already not finite)";
      return;
    }
  }
};

#define RW_CHECKED(Args, op)             \
  [](const Args& a, Stream s) {          \
    const Checker checker(s);            \
    checker.run(#op, checker.ops.op, a); \
  }

constexpr Ops kChecked{
    .name = "checked",
    .gemm = RW_CHECKED(Gemm, gemm),
    .gemm_pack = RW_CHECKED(GemmPack, gemm_pack),
    .gemm_workspace = [](const Gemm& a, Stream s) { return Checker(s).ops.gemm_workspace(a, s); },
    .packed_bytes = [](const GemmPack& a, Stream s) { return Checker(s).ops.packed_bytes(a, s); },
    .quant_pack = RW_CHECKED(QuantPack, quant_pack),
    .quant_unpack = RW_CHECKED(QuantUnpack, quant_unpack),
    .quant_gemm = RW_CHECKED(QuantGemm, quant_gemm),
    .quant_packed_bytes = [](const QuantPack& a, Stream s) { return Checker(s).ops.quant_packed_bytes(a, s); },
    .quant_gemm_workspace = [](const QuantGemm& a, Stream s) { return Checker(s).ops.quant_gemm_workspace(a, s); },
    .bias_bwd = RW_CHECKED(BiasBwd, bias_bwd),
    .norm_fwd = RW_CHECKED(NormFwd, norm_fwd),
    .norm_bwd = RW_CHECKED(NormBwd, norm_bwd),
    .rope = RW_CHECKED(Rope, rope),
    .attention_fwd = RW_CHECKED(AttentionFwd, attention_fwd),
    .attention_bwd = RW_CHECKED(AttentionBwd, attention_bwd),
    .attention_workspace = [](const AttentionBwd& a, Stream s) { return Checker(s).ops.attention_workspace(a, s); },
    .kv_write = RW_CHECKED(KvWrite, kv_write),
    .paged_attention = RW_CHECKED(PagedAttention, paged_attention),
    .paged_attention_workspace = [](const PagedAttention& a,
                                    Stream s) { return Checker(s).ops.paged_attention_workspace(a, s); },
    .gelu_fwd = RW_CHECKED(GeluFwd, gelu_fwd),
    .gelu_bwd = RW_CHECKED(GeluBwd, gelu_bwd),
    .swiglu_fwd = RW_CHECKED(SwigluFwd, swiglu_fwd),
    .swiglu_bwd = RW_CHECKED(SwigluBwd, swiglu_bwd),
    .embedding_fwd = RW_CHECKED(EmbeddingFwd, embedding_fwd),
    .embedding_bwd = RW_CHECKED(EmbeddingBwd, embedding_bwd),
    .cross_entropy_part = RW_CHECKED(CrossEntropyPart, cross_entropy_part),
    .cross_entropy_finish = RW_CHECKED(CrossEntropyFinish, cross_entropy_finish),
    .sample_scan = RW_CHECKED(SampleScan, sample_scan),
    .adamw = RW_CHECKED(AdamW, adamw),
    .sum_squares = RW_CHECKED(SumSquares, sum_squares),
    .cast = RW_CHECKED(Cast, cast),
    .add = RW_CHECKED(Add, add),
    .scale = RW_CHECKED(Scale, scale),
    .zero = RW_CHECKED(Zero, zero),
    .read = RW_CHECKED(Read, read),
    .upload = RW_CHECKED(Upload, upload),
};
#undef RW_CHECKED

}  // namespace

const Ops& checked_ops() { return kChecked; }

}  // namespace rw
