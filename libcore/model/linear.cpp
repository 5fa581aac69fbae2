#include "libcore/model/linear.h"

#include <algorithm>

namespace rw {
namespace {

GemmPack fwd_pack(const PackedLinear& w, const Exec& exec) {
  return {.packed = w.fwd,
          .b = w.master,
          .n = w.n_out,
          .k = w.n_in,
          .b_trans = Trans::yes,
          .src_t = DType::f32,
          .t = exec.t};
}

GemmPack bwd_pack(const PackedLinear& w, const Exec& exec) {
  return {.packed = w.bwd,
          .b = w.master,
          .n = w.n_in,
          .k = w.n_out,
          .b_trans = Trans::no,
          .src_t = DType::f32,
          .t = exec.t};
}

Gemm fwd_gemm(void* y, const void* x, int64_t rows, const PackedLinear& w, const Exec& exec) {
  return {.c = y,
          .a = x,
          .b_packed = w.fwd,
          .bias = w.bias,
          .m = rows,
          .n = w.n_out,
          .k = w.n_in,
          .ldc = w.ld_out,
          .t = exec.t,
          .ct = exec.t,
          .fixed_order = exec.deterministic,
          .workspace = exec.workspace};
}

QuantBits bits(const PackedLinear& w) { return w.format == WeightFormat::int8 ? QuantBits::int8 : QuantBits::int4; }
int64_t group(const PackedLinear& w) { return w.group > 0 ? w.group : default_quant_group(bits(w)); }

QuantPack quant_pack(const PackedLinear& w) {
  return {.packed = w.fwd, .b = w.master, .n = w.n_out, .k = w.n_in, .bits = bits(w), .group = group(w)};
}

QuantGemm quant_gemm(void* y, const void* x, int64_t rows, const PackedLinear& w, const Exec& exec) {
  return {.c = y,
          .a = x,
          .b_packed = w.fwd,
          .bias = w.bias,
          .m = rows,
          .n = w.n_out,
          .k = w.n_in,
          .bits = bits(w),
          .group = group(w),
          .t = exec.t,
          .ct = exec.t,
          .workspace = exec.workspace};
}

Gemm input_gemm(void* d_x, const void* d_y, int64_t rows, const PackedLinear& w, const Exec& exec) {
  Gemm g{.c = d_x,
         .a = d_y,
         .m = rows,
         .n = w.n_in,
         .k = w.n_out,
         .lda = w.ld_out,
         .t = exec.t,
         .ct = exec.t,
         .workspace = exec.workspace};
  if (has_one_copy(w, exec)) g.b = w.fwd;
  else g.b_packed = w.bwd;
  return g;
}

Gemm weight_gemm(const LinearGrad& grad, const void* d_y, const void* x, int64_t rows, const PackedLinear& w,
                 const Exec& exec) {
  return {.c = grad.d_w,
          .a = d_y,
          .b = x,
          .m = w.n_out,
          .n = w.n_in,
          .k = rows,
          .lda = w.ld_out,
          .a_trans = Trans::yes,
          .t = exec.t,
          .ct = DType::f32,
          .write = grad.write,
          .workspace = exec.workspace};
}

}  // namespace

int64_t packed_fwd_bytes(const PackedLinear& w, const Exec& exec) {
  if (w.format != WeightFormat::plain) return exec.ops.quant_packed_bytes(quant_pack(w), exec.stream);
  return exec.ops.packed_bytes(fwd_pack(w, exec), exec.stream);
}
int64_t packed_bwd_bytes(const PackedLinear& w, const Exec& exec) {
  return exec.ops.packed_bytes(bwd_pack(w, exec), exec.stream);
}

bool has_one_copy(const PackedLinear& w, const Exec& exec) { return packed_bwd_bytes(w, exec) == 0; }

void pack_fwd(const PackedLinear& w, const Exec& exec) {
  if (w.fwd == nullptr) return;
  if (w.format == WeightFormat::plain) exec.ops.gemm_pack(fwd_pack(w, exec), exec.stream);
  else exec.ops.quant_pack(quant_pack(w), exec.stream);
}

void pack_bwd(const PackedLinear& w, const Exec& exec) {
  if (has_one_copy(w, exec)) return;
  if (w.bwd != nullptr) exec.ops.gemm_pack(bwd_pack(w, exec), exec.stream);
}

void linear_fwd(void* y, const void* x, int64_t rows, const PackedLinear& w, const Exec& exec) {
  if (w.format == WeightFormat::plain) exec.ops.gemm(fwd_gemm(y, x, rows, w, exec), exec.stream);
  else exec.ops.quant_gemm(quant_gemm(y, x, rows, w, exec), exec.stream);
}

void linear_fwd_f32(float* y, const void* x, int64_t rows, const PackedLinear& w, const Exec& exec) {
  if (w.format == WeightFormat::plain) {
    Gemm g = fwd_gemm(y, x, rows, w, exec);
    g.ct = DType::f32;
    return exec.ops.gemm(g, exec.stream);
  }
  QuantGemm g = quant_gemm(y, x, rows, w, exec);
  g.ct = DType::f32;
  exec.ops.quant_gemm(g, exec.stream);
}

void linear_gelu_fwd(const GeluOutput& out, const void* x, int64_t rows, const PackedLinear& w, const Exec& exec) {
  if (w.format != WeightFormat::plain) {
    linear_fwd(out.y, x, rows, w, exec);
    return exec.ops.gelu_fwd({.y = out.act, .x = out.y, .n = rows * w.n_out, .t = exec.t}, exec.stream);
  }
  Gemm g = fwd_gemm(out.y, x, rows, w, exec);
  g.gelu = out.act;
  exec.ops.gemm(g, exec.stream);
}

void linear_bwd_input(void* d_x, const void* d_y, int64_t rows, const PackedLinear& w, const Exec& exec) {
  exec.ops.gemm(input_gemm(d_x, d_y, rows, w, exec), exec.stream);
}

void linear_gelu_bwd_input(const GeluInputGrad& grad, const void* d_y, int64_t rows, const PackedLinear& w,
                           const Exec& exec) {
  Gemm g = input_gemm(grad.d_of, d_y, rows, w, exec);
  g.gelu_slope_of = grad.of;
  exec.ops.gemm(g, exec.stream);
}

void linear_bwd_weight(const LinearGrad& grad, const void* d_y, const void* x, int64_t rows, const PackedLinear& w,
                       const Exec& exec) {
  exec.ops.gemm(weight_gemm(grad, d_y, x, rows, w, exec), exec.stream);
  if (grad.d_b != nullptr)
    exec.ops.bias_bwd(
        {.d_bias = grad.d_b, .d_y = d_y, .rows = rows, .n = w.n_out, .ld = w.ld_out, .t = exec.t, .write = grad.write},
        exec.stream);
}

int64_t linear_fwd_workspace_bytes(int64_t rows, const PackedLinear& w, const Exec& exec) {
  if (w.format != WeightFormat::plain)
    return exec.ops.quant_gemm_workspace(quant_gemm(nullptr, nullptr, rows, w, exec), exec.stream);
  return exec.ops.gemm_workspace(fwd_gemm(nullptr, nullptr, rows, w, exec), exec.stream);
}

int64_t linear_workspace_bytes(int64_t rows, const PackedLinear& w, const Exec& exec) {
  const auto bytes = [&](const Gemm& g) { return exec.ops.gemm_workspace(g, exec.stream); };
  int64_t most = linear_fwd_workspace_bytes(rows, w, exec);
  if (w.format != WeightFormat::plain) return most;
  most = std::max(most, bytes(input_gemm(nullptr, nullptr, rows, w, exec)));
  for (const Write write : {Write::overwrite, Write::accumulate})
    most = std::max(
        most, bytes(weight_gemm({.d_w = nullptr, .d_b = nullptr, .write = write}, nullptr, nullptr, rows, w, exec)));
  return most;
}

}  // namespace rw
