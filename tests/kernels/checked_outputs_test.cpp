// The checking table knows every output of every op, and where it ends: a backend that only writes one NaN is found out
// wherever that lies, with its field, row and column.
#include <type_traits>

#include "kernels/op_log.h"
#include "tests/kernels/array.h"

namespace rw::test {
namespace {

void* poisoned;  // where the backend below writes
DType poison_type;

// Every op of it writes one NaN.
template <class Args>
void write_nan(const Args&, Stream) {
  const uint64_t ones = ~uint64_t{0};  // NaN in every type
  std::memcpy(poisoned, &ones, static_cast<size_t>(dtype_bytes(poison_type)));
}

struct Output {
  const char* field;
  void* data;
  DType t;
  int64_t rows, cols;
  int64_t ld = 0;     // 0: cols
  int64_t first = 0;  // the first row that is the op's
};

template <class Args>
void check_outputs(const char* name, void (*Ops::*op)(const Args&, Stream), const std::type_identity_t<Args>& a,
                   const std::vector<Output>& outputs) {
  Ops backend = cpu_ops();
  backend.*op = write_nan<Args>;
  for (const Output& o : outputs) {
    const int64_t ld = o.ld == 0 ? o.cols : o.ld, size = dtype_bytes(o.t), last = o.first + o.rows - 1;
    poison_type = o.t;
    const auto said_at = [&](int64_t row, int64_t col) {
      poisoned = static_cast<char*>(o.data) + (row * ld + col) * size;
      std::vector<char> before(static_cast<size_t>(size));
      std::memcpy(before.data(), poisoned, before.size());
      OpLog log{.backend = &backend};
      (checked_ops().*op)(a, {.threads = 1, .log = &log});
      std::memcpy(poisoned, before.data(), before.size());
      return log.first_bad;
    };
    const auto want = [&](int64_t row, int64_t col) {
      return std::string(name) + ": element (row " + std::to_string(row) + ", column " + std::to_string(col) + ") of " +
             o.field + " is NaN";
    };
    CHECK(said_at(o.first, 0) == want(o.first, 0));
    CHECK(said_at(last, o.cols - 1) == want(last, o.cols - 1));
    CHECK(said_at(last, o.cols) == "");  // behind it
    if (o.first > 0) CHECK(said_at(o.first - 1, o.cols - 1) == "");
    if (ld > o.cols) CHECK(said_at(o.first, o.cols) == "");
  }
}

const DType kT = DType::bf16;

// Room for any operand here; zeros, which are finite.
struct Room {
  std::vector<char> bytes = std::vector<char>(1 << 14);
  operator void*() { return bytes.data(); }
  operator float*() { return reinterpret_cast<float*>(bytes.data()); }
  operator double*() { return reinterpret_cast<double*>(bytes.data()); }
};

TEST_CASE("checked: every output of products, norms and activations") {
  Room a, b, y, z, s, d, e, f;
  check_outputs("gemm", &Ops::gemm,
                {.c = y, .a = a, .b = b, .m = 3, .n = 5, .k = 7, .ldc = 9, .t = kT, .ct = DType::f32},
                {{"c", y, DType::f32, 3, 5, 9}});
  check_outputs("gemm", &Ops::gemm, {.c = y, .a = a, .b = b, .gelu = z, .m = 3, .n = 5, .k = 7, .t = kT, .ct = kT},
                {{"c", y, kT, 3, 5}, {"gelu", z, kT, 3, 5}});
  check_outputs("gemm", &Ops::gemm, {.c = y, .a = a, .b = b, .gelu = y, .m = 3, .n = 5, .k = 7, .t = kT, .ct = kT},
                {{"c", y, kT, 3, 5}});
  check_outputs("quant_gemm", &Ops::quant_gemm,
                {.c = y,
                 .a = a,
                 .b_packed = b,
                 .m = 3,
                 .n = 5,
                 .k = 7,
                 .ldc = 9,
                 .bits = QuantBits::int8,
                 .group = 128,
                 .t = kT,
                 .ct = DType::f32},
                {{"c", y, DType::f32, 3, 5, 9}});
  check_outputs("quant_unpack", &Ops::quant_unpack,
                {.b = y, .packed = b, .n = 3, .k = 5, .ldb = 6, .bits = QuantBits::int8, .group = 128},
                {{"b", y, DType::f32, 3, 5, 6}});
  check_outputs("bias_bwd", &Ops::bias_bwd,
                {.d_bias = y, .d_y = a, .rows = 3, .n = 5, .t = kT, .write = Write::overwrite},
                {{"d_bias", y, DType::f32, 1, 5}});
  check_outputs(
      "norm_fwd", &Ops::norm_fwd,
      {.y = y,
       .mean = d,
       .rstd = e,
       .x = a,
       .add = b,
       .sum = s,
       .w = z,
       .rows = 3,
       .c = 5,
       .eps = 1,
       .kind = NormKind::layer,
       .t = kT},
      {{"y", y, kT, 3, 5}, {"sum", s, kT, 3, 5}, {"mean", d, DType::f32, 3, 1}, {"rstd", e, DType::f32, 3, 1}});
  check_outputs("norm_bwd", &Ops::norm_bwd,
                {.d_x = y,
                 .d_w = d,
                 .d_b = e,
                 .d_y = a,
                 .x = b,
                 .mean = f,
                 .rstd = f,
                 .w = z,
                 .rows = 3,
                 .c = 5,
                 .kind = NormKind::layer,
                 .t = kT},
                {{"d_x", y, kT, 3, 5}, {"d_w", d, DType::f32, 1, 5}, {"d_b", e, DType::f32, 1, 5}});
  check_outputs("gelu_fwd", &Ops::gelu_fwd, {y, a, 11, kT}, {{"y", y, kT, 1, 11}});
  check_outputs("gelu_bwd", &Ops::gelu_bwd, {y, a, b, 11, kT}, {{"d_x", y, kT, 1, 11}});
  check_outputs("swiglu_fwd", &Ops::swiglu_fwd, {y, a, 3, 11, kT}, {{"y", y, kT, 3, 11}});
  check_outputs("swiglu_bwd", &Ops::swiglu_bwd, {y, a, b, 3, 11, kT}, {{"d_x", y, kT, 3, 22}});
}

TEST_CASE("checked: every output of positions, attention and pages") {
  Room q, k, v, o, d_q, d_k, d_v, lse, cs;
  const int32_t pos[] = {0, 1, 2}, cu[] = {2, 4, 4, 7}, table[] = {0, 1, 1, 0}, context[] = {3, 2, 4};
  check_outputs("rope", &Ops::rope,
                {.x = q, .pos = pos, .cos = cs, .sin = cs, .rows = 3, .heads = 2, .d = 4, .ld = 11, .t = kT},
                {{"x", q, kT, 3, 8, 11}});
  check_outputs("attention_fwd", &Ops::attention_fwd,
                {.o = o,
                 .lse = lse,
                 .q = q,
                 .k = k,
                 .v = v,
                 .ldo = 35,
                 .cu_seqlens = cu,
                 .n_seq = 3,
                 .heads = 4,
                 .kv_heads = 2,
                 .d = 8,
                 .scale = 1,
                 .t = kT},
                {{"o", o, kT, 5, 32, 35, 2}, {"lse", lse, DType::f32, 5, 4, 0, 2}});
  check_outputs("attention_bwd", &Ops::attention_bwd,
                {.d_q = d_q,
                 .d_k = d_k,
                 .d_v = d_v,
                 .d_o = o,
                 .q = q,
                 .k = k,
                 .v = v,
                 .o = o,
                 .lse = lse,
                 .ldq = 33,
                 .ldkv = 17,
                 .cu_seqlens = cu,
                 .n_seq = 3,
                 .heads = 4,
                 .kv_heads = 2,
                 .d = 8,
                 .scale = 1,
                 .t = kT},
                {{"d_q", d_q, kT, 5, 32, 33, 2}, {"d_k", d_k, kT, 5, 16, 17, 2}, {"d_v", d_v, kT, 5, 16, 17, 2}});
  const int64_t slot[] = {3, -1, 4};  // rows 3 and 4 of the pages
  check_outputs(
      "kv_write", &Ops::kv_write,
      {.k_pages = d_k, .v_pages = d_v, .k = k, .v = v, .slot = slot, .rows = 3, .kv_heads = 2, .d = 8, .t = kT},
      {{"k_pages", d_k, kT, 2, 16, 0, 3}, {"v_pages", d_v, kT, 2, 16, 0, 3}});
  check_outputs("kv_write", &Ops::kv_write,
                {.k_pages = q,
                 .v_pages = o,
                 .k = k,
                 .v = v,
                 .slot = slot,
                 .rows = 3,
                 .kv_heads = 2,
                 .d = 8,
                 .t = kT,
                 .kv_t = DType::i8,
                 .k_scales = d_k,
                 .v_scales = d_v},
                {{"k_scales", d_k, DType::f32, 2, 2, 0, 3}, {"v_scales", d_v, DType::f32, 2, 2, 0, 3}});
  check_outputs("paged_attention", &Ops::paged_attention,
                {.o = o,
                 .q = q,
                 .k_pages = k,
                 .v_pages = v,
                 .page_table = table,
                 .q_start = cu,
                 .context_len = context,
                 .n_seq = 3,
                 .max_pages = 1,
                 .page_tokens = 4,
                 .heads = 4,
                 .kv_heads = 2,
                 .d = 8,
                 .ldo = 35,
                 .scale = 1,
                 .t = kT},
                {{"o", o, kT, 5, 32, 35, 2}});
}

TEST_CASE("checked: every output of embeddings, loss, optimizer and elementwise ops") {
  Room x, y, a, b, p, m, v;
  const int32_t id[] = {9, 3, 8}, pos[] = {2, 1, 1};
  check_outputs("embedding_fwd", &Ops::embedding_fwd, {.x = x, .table = a, .id = id, .rows = 3, .c = 5, .t = kT},
                {{"x", x, kT, 3, 5}});
  check_outputs("embedding_bwd", &Ops::embedding_bwd,
                {.d_table = a,
                 .d_pos_table = b,
                 .d_x = x,
                 .id = id,
                 .pos = pos,
                 .rows = 3,
                 .c = 5,
                 .id_begin = 7,
                 .id_end = 10,
                 .t = kT},
                {{"d_table", a, DType::f32, 2, 5, 0, 1}, {"d_pos_table", b, DType::f32, 2, 5, 0, 1}});
  check_outputs("cross_entropy_part", &Ops::cross_entropy_part,
                {.part = y, .logits = x, .target = id, .rows = 3, .v = 5, .t = kT}, {{"part", y, DType::f32, 3, 3}});
  check_outputs("cross_entropy_finish", &Ops::cross_entropy_finish,
                {.loss = y,
                 .logits = x,
                 .parts = a,
                 .n_parts = 2,
                 .target = id,
                 .rows = 3,
                 .v = 5,
                 .ld = 6,
                 .d_scale = 1,
                 .t = kT},
                {{"loss", y, DType::f32, 3, 1}, {"logits", x, kT, 3, 5, 6}});
  check_outputs("adamw", &Ops::adamw, {.p = p, .m = m, .v = v, .g = a, .n = 11, .grad_scale = 1, .step = 1},
                {{"p", p, DType::f32, 1, 11}, {"m", m, DType::f32, 1, 11}, {"v", v, DType::f32, 1, 11}});
  check_outputs("sum_squares", &Ops::sum_squares, {y, a, 11, 4}, {{"partial", y, DType::f64, 1, 3}});
  check_outputs("cast", &Ops::cast, {y, a, 11, DType::f16, kT}, {{"y", y, DType::f16, 1, 11}});
  check_outputs("add", &Ops::add, {y, a, b, 11, DType::f16}, {{"y", y, DType::f16, 1, 11}});
  check_outputs("scale", &Ops::scale, {y, 2, 11, kT}, {{"y", y, kT, 1, 11}});
  check_outputs("read", &Ops::read, {y, a, 11, DType::f64}, {{"host", y, DType::f64, 1, 11}});
}

}  // namespace
}  // namespace rw::test
