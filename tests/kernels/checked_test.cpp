// The checking table names the op, the field and the place of the first value that is not finite. A NaN is planted in
// each floating-point input of each op in turn.
#include <type_traits>

#include "kernels/op_log.h"
#include "tests/kernels/array.h"

namespace rw::test {
namespace {

const std::string kInherited = " (its inputs were already not finite)";

struct Checked {
  OpLog log{.backend = &cpu_ops(), .scope = "block 3"};
  Stream stream() { return {.threads = 2, .log = &log}; }
};

template <class Args>
std::string found_by(void (*Ops::*op)(const Args&, Stream), const std::type_identity_t<Args>& a) {
  Checked c;
  (checked_ops().*op)(a, c.stream());
  size_t kinds = 1;
  if constexpr (std::is_same_v<Args, Gemm>) kinds += a.gelu != nullptr || a.gelu_slope_of != nullptr ? 1 : 0;
  CHECK(c.log.ops.size() == kinds);
  return c.log.first_bad;
}

// Finite inputs leave nothing said; a NaN in any of `inputs` (element `at`) is found in an output of `name`.
struct Planted {
  const char* name;
  std::vector<Array*> inputs;
  int64_t at = 0;
};
template <class Args>
void check_planted(const Planted& p, void (*Ops::*op)(const Args&, Stream), const std::type_identity_t<Args>& a) {
  INFO(std::string(p.name));
  CHECK(found_by(op, a) == "");
  for (size_t i = 0; i < p.inputs.size(); ++i) {
    INFO("input " << i);
    std::vector<Array> before;
    for (const Array* x : p.inputs) before.push_back(copy_of(*x));
    p.inputs[i]->set(p.at, NAN);
    const std::string said = found_by(op, a);
    INFO(said);
    CHECK(said.starts_with(std::string(p.name) + " in block 3: element (row "));
    CHECK(said.ends_with(" is NaN" + kInherited));
    for (size_t j = 0; j < before.size(); ++j)
      std::memcpy(p.inputs[j]->data(), before[j].data(),
                  static_cast<size_t>(before[j].size() * dtype_bytes(before[j].type())));
    CHECK(found_by(op, a) == "");
  }
}

const DType kT = DType::bf16;
constexpr int64_t kRows = 6, kC = 20;

struct Matrices {
  Array a{kT, kRows*kC, 1}, b{kT, kRows*kC, 2}, y{kT, kRows*kC, 3}, z{kT, kRows*kC, 4};
  Array w{DType::f32, kC, 5}, v{DType::f32, kC, 6}, d_w{DType::f32, kC, 7}, d_b{DType::f32, kC, 8};
  Array mean{DType::f32, kRows, 9}, rstd{DType::f32, kRows, 10};
};

TEST_CASE("checked: a NaN in a matrix product, a bias, a norm") {
  Matrices x;
  Array c(DType::f32, kRows * kRows, 11), bias(DType::f32, kRows, 12);
  std::vector<char> workspace(1 << 20);
  Gemm g{.c = c.data(), .a = x.a.data(), .b = x.b.data(), .bias = bias.f32(), .m = kRows, .n = kRows, .k = kC};
  g.b_trans = Trans::yes, g.t = kT, g.ct = DType::f32, g.write = Write::accumulate, g.workspace = workspace.data();
  check_planted({"gemm", {&c, &x.a, &x.b, &bias}}, &Ops::gemm, g);
  Array act(DType::f32, kRows * kRows, 13), slope_of(DType::f32, kRows * kRows, 14);
  g.write = Write::overwrite, g.gelu = act.data();
  check_planted({"gemm", {&x.a, &x.b, &bias}}, &Ops::gemm, g);
  g.gelu = nullptr, g.bias = nullptr, g.gelu_slope_of = slope_of.data();
  check_planted({"gemm", {&x.a, &x.b, &slope_of}}, &Ops::gemm, g);
  check_planted(
      {"bias_bwd", {&x.a, &x.d_b}}, &Ops::bias_bwd,
      {.d_bias = x.d_b.f32(), .d_y = x.a.data(), .rows = kRows, .n = kC, .t = kT, .write = Write::accumulate});
  check_planted({"norm_fwd", {&x.a, &x.b, &x.w, &x.v}}, &Ops::norm_fwd,
                {.y = x.y.data(),
                 .mean = x.mean.f32(),
                 .rstd = x.rstd.f32(),
                 .x = x.a.data(),
                 .add = x.b.data(),
                 .sum = x.z.data(),
                 .w = x.w.f32(),
                 .b = x.v.f32(),
                 .rows = kRows,
                 .c = kC,
                 .eps = 1e-5f,
                 .kind = NormKind::layer,
                 .t = kT});
  check_planted({"norm_bwd", {&x.a, &x.b, &x.y, &x.w, &x.mean, &x.rstd, &x.d_w, &x.d_b}}, &Ops::norm_bwd,
                {.d_x = x.z.data(),
                 .d_w = x.d_w.f32(),
                 .d_b = x.d_b.f32(),
                 .d_y = x.a.data(),
                 .x = x.b.data(),
                 .d_res = x.y.data(),
                 .mean = x.mean.f32(),
                 .rstd = x.rstd.f32(),
                 .w = x.w.f32(),
                 .rows = kRows,
                 .c = kC,
                 .kind = NormKind::layer,
                 .t = kT});
}

TEST_CASE("checked: a NaN in positions, attention and pages") {
  const int64_t heads = 2, d = 8, width = heads * d;
  const int32_t pos[] = {0, 1, 2, 0, 1, 2}, cu[] = {0, 3, 6};
  Array q(kT, kRows * width, 1), k(kT, kRows * width, 2), v(kT, kRows * width, 3), o(kT, kRows * width, 4);
  Array d_o(kT, kRows * width, 5), d_q(kT, kRows * width), d_k(kT, kRows * width), d_v(kT, kRows * width);
  Array lse(DType::f32, kRows * heads, 6), cos(DType::f32, 9 * d / 2, 7), sin(DType::f32, 9 * d / 2, 8);
  cos.set(8 * d / 2, NAN);  // a position that no row has
  check_planted({"rope", {&d_o, &cos, &sin}}, &Ops::rope,
                {.x = d_o.data(),
                 .pos = pos,
                 .cos = cos.f32(),
                 .sin = sin.f32(),
                 .rows = kRows,
                 .heads = heads,
                 .d = d,
                 .t = kT});
  AttentionBwd bwd{.d_q = d_q.data(),
                   .d_k = d_k.data(),
                   .d_v = d_v.data(),
                   .d_o = d_o.data(),
                   .q = q.data(),
                   .k = k.data(),
                   .v = v.data(),
                   .o = o.data(),
                   .lse = lse.f32(),
                   .cu_seqlens = cu,
                   .n_seq = 2,
                   .heads = heads,
                   .kv_heads = heads,
                   .d = d,
                   .scale = 0.3f,
                   .t = kT};
  std::vector<char> workspace(static_cast<size_t>(cpu_ops().attention_workspace(bwd, {2})));
  bwd.workspace = workspace.data();
  check_planted({"attention_fwd", {&q, &k, &v}}, &Ops::attention_fwd,
                {.o = o.data(),
                 .lse = lse.f32(),
                 .q = q.data(),
                 .k = k.data(),
                 .v = v.data(),
                 .cu_seqlens = cu,
                 .n_seq = 2,
                 .heads = heads,
                 .kv_heads = heads,
                 .d = d,
                 .scale = 0.3f,
                 .t = kT,
                 .workspace = workspace.data()});
  check_planted({"attention_bwd", {&d_o, &q, &k, &v, &o, &lse}}, &Ops::attention_bwd, bwd);

  const int64_t slot[] = {4, 5, 6, -1, 8, 9};
  Array k_pages(kT, 12 * width, 1), v_pages(kT, 12 * width, 2);
  check_planted({"kv_write", {&k, &v}}, &Ops::kv_write,
                {.k_pages = k_pages.data(),
                 .v_pages = v_pages.data(),
                 .k = k.data(),
                 .v = v.data(),
                 .slot = slot,
                 .rows = kRows,
                 .kv_heads = heads,
                 .d = d,
                 .t = kT});
  const int32_t pages[] = {0, 1, 1, 2}, q_start[] = {0, 1, 3}, context[] = {7, 2};
  k_pages.set(8 * width, NAN);  // page 2, which nobody reads
  check_planted({"paged_attention", {&q, &k_pages, &v_pages}, 2 * width}, &Ops::paged_attention,
                {.o = o.data(),
                 .q = q.data(),
                 .k_pages = k_pages.data(),
                 .v_pages = v_pages.data(),
                 .page_table = pages,
                 .q_start = q_start,
                 .context_len = context,
                 .n_seq = 2,
                 .max_pages = 2,
                 .page_tokens = 4,
                 .heads = heads,
                 .kv_heads = heads,
                 .d = d,
                 .scale = 0.3f,
                 .t = kT});
}

TEST_CASE("checked: a NaN in activations, embeddings, the loss") {
  Matrices x;
  const int64_t n = kRows * kC;
  check_planted({"gelu_fwd", {&x.a}, 17}, &Ops::gelu_fwd, {x.y.data(), x.a.data(), n, kT});
  check_planted({"gelu_bwd", {&x.a, &x.b}, 17}, &Ops::gelu_bwd, {x.y.data(), x.a.data(), x.b.data(), n, kT});
  check_planted({"swiglu_fwd", {&x.a}, 17}, &Ops::swiglu_fwd, {x.y.data(), x.a.data(), kRows, kC / 2, kT});
  check_planted({"swiglu_bwd", {&x.a, &x.b}, 17}, &Ops::swiglu_bwd,
                {x.y.data(), x.a.data(), x.b.data(), kRows / 2, kC, kT});
  const int32_t id[] = {7, 3, 9, 1, 7, 100}, pos[] = {0, 1, 2, 0, 1, 2};
  Array table(DType::f32, 8 * kC, 1), pos_table(DType::f32, 4 * kC, 2);
  table.set(1 * kC, NAN), table.set(5 * kC, NAN), pos_table.set(3 * kC, NAN);  // ids 4 and 8, which do not occur
  check_planted({"embedding_fwd", {&pos_table, &table}}, &Ops::embedding_fwd,
                {.x = x.y.data(),
                 .table = table.f32(),
                 .pos_table = pos_table.f32(),
                 .id = id,
                 .pos = pos,
                 .rows = kRows,
                 .c = kC,
                 .id_begin = 3,
                 .id_end = 11,
                 .t = kT});
  check_planted({"embedding_bwd", {&pos_table, &table, &x.a}}, &Ops::embedding_bwd,
                {.d_table = table.f32(),
                 .d_pos_table = pos_table.f32(),
                 .d_x = x.a.data(),
                 .id = id,
                 .pos = pos,
                 .rows = kRows,
                 .c = kC,
                 .id_begin = 3,
                 .id_end = 11,
                 .t = kT});
  const int32_t target[] = {0, 1, 30, 3, -1, 5};
  Array part(DType::f32, kRows * 3), loss(DType::f32, kRows);
  x.a.set(1, -INFINITY);  // masked: no fault, here or in the maximum of an empty share
  const CrossEntropyPart half{
      .part = part.f32(), .logits = x.a.data(), .target = target, .rows = kRows, .v = kC, .t = kT};
  check_planted({"cross_entropy_part", {&x.a}, kC + 3}, &Ops::cross_entropy_part, half);
  CrossEntropyPart none = half;
  none.v = 0;
  CHECK(found_by(&Ops::cross_entropy_part, none) == "");
  x.a.set(2, INFINITY);
  CHECK(found_by(&Ops::cross_entropy_part, half) ==
        "cross_entropy_part in block 3: element (row 0, column 0) of part is inf" + kInherited);
  x.a.set(2, 0);
  const int32_t all_here[] = {0, 1, 3, 3, -1, 5};
  CrossEntropyPart whole = half;
  whole.target = all_here;
  cpu_ops().cross_entropy_part(whole, {});
  check_planted({"cross_entropy_finish", {&part, &x.b}, 10}, &Ops::cross_entropy_finish,
                {.loss = loss.f32(),
                 .logits = x.b.data(),
                 .parts = part.f32(),
                 .n_parts = 1,
                 .target = all_here,
                 .rows = kRows,
                 .v = kC,
                 .d_scale = 1,
                 .t = kT});
}

TEST_CASE("checked: a NaN in the optimizer and in elementwise ops") {
  const int64_t n = 300, at = 299;
  Array p(DType::f32, n, 1), m(DType::f32, n, 2), v(DType::f32, n, 3), g(DType::f32, n, 4), h(kT, n), y(kT, n, 5);
  for (int64_t i = 0; i < n; ++i) v.set(i, 1 + v[i]);
  check_planted({"adamw", {&p, &m, &v, &g}, at}, &Ops::adamw,
                {.p = p.f32(),
                 .m = m.f32(),
                 .v = v.f32(),
                 .g = g.f32(),
                 .n = n,
                 .lr = 0.1f,
                 .beta1 = 0.9f,
                 .beta2 = 0.9f,
                 .eps = 1e-8f,
                 .weight_decay = 0,
                 .grad_scale = 1,
                 .step = 1});
  double partial[3];
  check_planted({"sum_squares", {&g}, at}, &Ops::sum_squares, {partial, g.f32(), n, 128});
  check_planted({"cast", {&g}, at}, &Ops::cast, {h.data(), g.data(), n, kT, DType::f32});
  check_planted({"add", {&h, &y}, at}, &Ops::add, {y.data(), h.data(), y.data(), n, kT});
  check_planted({"scale", {&h}, at}, &Ops::scale, {h.data(), 2, n, kT});
  float host[300];
  check_planted({"read", {&g}, at}, &Ops::read, {host, g.f32(), n, DType::f32});
  h.set(7, NAN);
  CHECK(found_by(&Ops::zero, {h.data(), n * 2}) == "");
}

TEST_CASE("checked: the place is named, only the first is kept, an overflow's inputs were finite") {
  Array a(DType::f32, 12, 1), y(DType::f32, 12);
  Checked c;
  const auto add = [&] {
    checked_ops().add({y.data(), a.data(), a.data(), 12, DType::f32}, c.stream());
    return c.log.first_bad;
  };
  CHECK(add() == "");
  a.set(5, 3e38);
  c.log.look = false;
  CHECK(add() == "");
  c.log.look = true;
  CHECK(add() == "add in block 3: element (row 0, column 5) of y is inf");
  a.set(2, NAN);
  CHECK(add() == "add in block 3: element (row 0, column 5) of y is inf");
  CHECK(std::isnan(y[2]));  // the op still runs
  CHECK(c.log.ops.at("add").calls == 4);

  // Rows of a strided result; what lies between them is not looked at.
  Array x(DType::f32, 3 * 4, 1), b(DType::f32, 4 * 2, 2), z(DType::f32, 3 * 5);
  for (int64_t i = 0; i < z.size(); ++i) z.set(i, NAN);
  std::vector<char> workspace(1 << 20);
  Gemm g{.c = z.data(), .a = x.data(), .b = b.data(), .m = 3, .n = 2, .k = 4, .ldc = 5, .t = DType::f32};
  g.ct = DType::f32, g.workspace = workspace.data();
  CHECK(found_by(&Ops::gemm, g) == "");
  for (int64_t i = 0; i < 4; ++i) x.set(8 + i, 2e38), b.set(2 * i + 1, 2), b.set(2 * i, 0);
  CHECK(found_by(&Ops::gemm, g) == "gemm in block 3: element (row 2, column 1) of c is inf");
  x.set(5, INFINITY);
  CHECK(found_by(&Ops::gemm, g) == "gemm in block 3: element (row 1, column 0) of c is NaN" + kInherited);
}

TEST_CASE("checked: a NaN in a quantised product and in keys kept in 8 bits") {
  const int64_t m = 3, n = 37, k = 200;
  alignas(64) static char packed[1 << 16], workspace[1 << 20];
  Array a(kT, m * k, 1), w(DType::f32, n * k, 2), bias(DType::f32, n, 3), c(kT, m * n);
  for (QuantBits bits : {QuantBits::int8, QuantBits::int4}) {
    const QuantPack pack{
        .packed = packed, .b = w.f32(), .n = n, .k = k, .bits = bits, .group = default_quant_group(bits)};
    REQUIRE(cpu_ops().quant_packed_bytes(pack, {}) <= int64_t{sizeof packed});
    const QuantGemm g{.c = c.data(),
                      .a = a.data(),
                      .b_packed = packed,
                      .bias = bias.f32(),
                      .m = m,
                      .n = n,
                      .k = k,
                      .bits = bits,
                      .group = pack.group,
                      .t = kT,
                      .ct = kT,
                      .workspace = workspace};
    REQUIRE(cpu_ops().quant_gemm_workspace(g, {.threads = 2}) <= int64_t{sizeof workspace});
    CHECK(found_by(&Ops::quant_pack, pack) == "");
    check_planted({"quant_gemm", {&a, &bias}, 17}, &Ops::quant_gemm, g);
    w.set(5 * k + 2, NAN);
    CHECK(found_by(&Ops::quant_pack, pack) ==
          "quant_pack in block 3: element (row 5, column 2) of packed is NaN" + kInherited);
    CHECK(found_by(&Ops::quant_gemm, g) == "quant_gemm in block 3: element (row 0, column 5) of c is NaN" + kInherited);
    w.set(5 * k + 2, 0);
  }
  Array key(kT, 2 * 16, 1), value(kT, 2 * 16, 2), scales(DType::f32, 8, 3);
  char pages[2][4 * 16];
  const int64_t slot[] = {3, 1};
  const KvWrite write{.k_pages = pages[0],
                      .v_pages = pages[1],
                      .k = key.data(),
                      .v = value.data(),
                      .slot = slot,
                      .rows = 2,
                      .kv_heads = 2,
                      .d = 8,
                      .t = kT,
                      .kv_t = DType::i8,
                      .k_scales = scales.f32(),
                      .v_scales = scales.f32()};
  CHECK(found_by(&Ops::kv_write, write) == "");
  key.set(9, NAN), value.set(9, NAN);
  CHECK(found_by(&Ops::kv_write, write) ==
        "kv_write in block 3: element (row 3, column 1) of k_scales is NaN" + kInherited);
}

TEST_CASE("checked: packed matrices are looked at when they are packed, and asked when a product is bad") {
  for (DType t : kActivations) {
    const int64_t m = 3, n = 37, k = 41;
    Array a(t, m * k, 1), w(DType::f32, n * k, 2), c(t, m * n);
    GemmPack pack{.b = w.data(), .n = n, .k = k, .b_trans = Trans::yes, .src_t = DType::f32, .t = t};
    std::vector<char> packed(static_cast<size_t>(cpu_ops().packed_bytes(pack, {})) + 64), workspace(1 << 20);
    pack.packed = packed.data() + (64 - reinterpret_cast<uintptr_t>(packed.data()) % 64);
    Gemm g{.c = c.data(), .a = a.data(), .b_packed = pack.packed, .m = m, .n = n, .k = k, .t = t, .ct = t};
    g.workspace = workspace.data() + (64 - reinterpret_cast<uintptr_t>(workspace.data()) % 64);
    CHECK(found_by(&Ops::gemm_pack, pack) == "");
    CHECK(found_by(&Ops::gemm, g) == "");
    const double big = t == DType::f16 ? 60000 : 3e38;  // f16: c overflows, the sums in f32 do not
    a.set(0, big), w.set(0, big);
    CHECK(found_by(&Ops::gemm_pack, pack) == "");
    CHECK(found_by(&Ops::gemm, g) == "gemm in block 3: element (row 0, column 0) of c is inf");
    a.set(0, 1), w.set(5 * k + 2, NAN);
    CHECK(found_by(&Ops::gemm_pack, pack) ==
          "gemm_pack in block 3: element (row 5, column 2) of packed is NaN" + kInherited);
    CHECK(found_by(&Ops::gemm, g) == "gemm in block 3: element (row 0, column 5) of c is NaN" + kInherited);
  }
  // Larger than the largest bf16, 255 * 2^120, or f16, 65504: packing makes infinity of it.
  Array w(DType::f32, 2, 1);
  alignas(64) static char packed[1 << 12];
  w.set(1, 0x1.ffp127);
  CHECK(found_by(&Ops::gemm_pack, {.packed = packed, .b = w.data(), .n = 2, .k = 1, .src_t = DType::f32, .t = kT}) ==
        "gemm_pack in block 3: element (row 0, column 1) of packed is inf");
  w.set(1, 65519.9);
  GemmPack half{.packed = packed, .b = w.data(), .n = 1, .k = 2, .src_t = DType::f32, .t = DType::f16};
  CHECK(found_by(&Ops::gemm_pack, half) == "");
  w.set(1, 65520);
  CHECK(found_by(&Ops::gemm_pack, half) == "gemm_pack in block 3: element (row 1, column 0) of packed is inf");
  Array y(DType::f16, 2);
  CHECK(found_by(&Ops::cast, {y.data(), w.data(), 2, DType::f16, DType::f32}) ==
        "cast in block 3: element (row 0, column 1) of y is inf");
}

}  // namespace
}  // namespace rw::test
