// The meta table: counts what cost() says, and touches no memory (its pointers lead nowhere).
#include "kernels/op_log.h"
#include "tests/kernels/array.h"

namespace rw::test {
namespace {

template <class T = void>
T* nowhere() {
  return reinterpret_cast<T*>(uintptr_t{0x40});
}

const int32_t kCu[] = {0, 5, 5, 12};
const int32_t kContext[] = {9, 0, 7};

// f(name, op of a table, arguments) for every op that is counted.
template <class F>
void each_op(const F& f) {
  void* const p = nowhere();
  float* const x = nowhere<float>();
  const int32_t* const i32 = nowhere<int32_t>();
  const DType t = DType::bf16;
  f("gemm", &Ops::gemm, Gemm{.c = p, .a = p, .b = p, .bias = x, .m = 3, .n = 5, .k = 7, .t = t, .ct = t});
  f("gemm_pack", &Ops::gemm_pack, GemmPack{.packed = p, .b = p, .n = 5, .k = 7, .src_t = DType::f32, .t = t});
  {
    const QuantBits bits = QuantBits::int4;
    const int64_t group = 32;
    f("quant_pack", &Ops::quant_pack, QuantPack{.packed = p, .b = x, .n = 5, .k = 700, .bits = bits, .group = group});
    f("quant_unpack", &Ops::quant_unpack,
      QuantUnpack{.b = x, .packed = p, .n = 5, .k = 700, .bits = bits, .group = group});
    f("quant_gemm", &Ops::quant_gemm,
      QuantGemm{.c = p,
                .a = p,
                .b_packed = p,
                .bias = x,
                .m = 3,
                .n = 5,
                .k = 700,
                .bits = bits,
                .group = group,
                .t = t,
                .ct = t});
  }
  f("bias_bwd", &Ops::bias_bwd, BiasBwd{.d_bias = x, .d_y = p, .rows = 3, .n = 5, .t = t, .write = Write::accumulate});
  f("norm_fwd", &Ops::norm_fwd,
    NormFwd{.y = p, .rstd = x, .x = p, .w = x, .rows = 3, .c = 5, .eps = 1, .kind = NormKind::rms, .t = t});
  f("norm_bwd", &Ops::norm_bwd,
    NormBwd{.d_x = p, .d_y = p, .x = p, .rstd = x, .w = x, .rows = 3, .c = 5, .kind = NormKind::rms, .t = t});
  f("rope", &Ops::rope, Rope{.x = p, .pos = i32, .cos = x, .sin = x, .rows = 3, .heads = 2, .d = 4, .t = t});
  f("attention_fwd", &Ops::attention_fwd,
    AttentionFwd{.o = p,
                 .lse = x,
                 .q = p,
                 .k = p,
                 .v = p,
                 .cu_seqlens = kCu,
                 .n_seq = 3,
                 .heads = 4,
                 .kv_heads = 2,
                 .d = 8,
                 .scale = 1,
                 .t = t});
  f("attention_bwd", &Ops::attention_bwd,
    AttentionBwd{.d_q = p,
                 .d_k = p,
                 .d_v = p,
                 .d_o = p,
                 .q = p,
                 .k = p,
                 .v = p,
                 .o = p,
                 .lse = x,
                 .cu_seqlens = kCu,
                 .n_seq = 3,
                 .heads = 4,
                 .kv_heads = 2,
                 .d = 8,
                 .scale = 1,
                 .t = t});
  f("kv_write", &Ops::kv_write,
    KvWrite{.k_pages = p, .v_pages = p, .k = p, .v = p, .slot = nullptr, .rows = 3, .kv_heads = 2, .d = 8, .t = t});
  f("paged_attention", &Ops::paged_attention,
    PagedAttention{.o = p,
                   .q = p,
                   .k_pages = p,
                   .v_pages = p,
                   .page_table = i32,
                   .q_start = kCu,
                   .context_len = kContext,
                   .n_seq = 3,
                   .max_pages = 2,
                   .page_tokens = 8,
                   .heads = 4,
                   .kv_heads = 2,
                   .d = 8,
                   .scale = 1,
                   .t = t});
  f("gelu_fwd", &Ops::gelu_fwd, GeluFwd{p, p, 11, t});
  f("gelu_bwd", &Ops::gelu_bwd, GeluBwd{p, p, p, 11, t});
  f("swiglu_fwd", &Ops::swiglu_fwd, SwigluFwd{p, p, 3, 11, t});
  f("swiglu_bwd", &Ops::swiglu_bwd, SwigluBwd{p, p, p, 3, 11, t});
  f("embedding_fwd", &Ops::embedding_fwd,
    EmbeddingFwd{.x = p, .table = x, .id = i32, .rows = 3, .c = 5, .id_begin = 7, .id_end = 9, .t = t});
  f("embedding_bwd", &Ops::embedding_bwd,
    EmbeddingBwd{.d_table = x, .d_x = p, .id = i32, .rows = 3, .c = 5, .id_begin = 7, .id_end = 9, .t = t});
  f("cross_entropy_part", &Ops::cross_entropy_part,
    CrossEntropyPart{.part = x, .logits = p, .target = i32, .rows = 3, .v = 7, .t = t});
  f("cross_entropy_finish", &Ops::cross_entropy_finish,
    CrossEntropyFinish{
        .loss = x, .logits = p, .parts = x, .n_parts = 2, .target = i32, .rows = 3, .v = 7, .d_scale = 1, .t = t});
  f("adamw", &Ops::adamw, AdamW{.p = x, .m = x, .v = x, .g = x, .n = 11, .step = 1});
  f("sum_squares", &Ops::sum_squares, SumSquares{nowhere<double>(), x, 11, 4});
  f("cast", &Ops::cast, Cast{p, p, 11, DType::f16, t});
  f("add", &Ops::add, Add{p, p, p, 11, t});
  f("scale", &Ops::scale, Scale{p, 2, 11, t});
  f("zero", &Ops::zero, Zero{p, 11});
  f("upload", &Ops::upload, Upload{p, kCu, sizeof kCu});
  f("sample_scan", &Ops::sample_scan,
    SampleScan{.facts = nowhere<SampleFacts>(),
               .best_z = x,
               .best_column = nowhere<int32_t>(),
               .logits = x,
               .ask = nowhere<SampleAsk>(),
               .n = 3,
               .v = 7,
               .most_best = 4});
}

TEST_CASE("meta ops count what cost() says, by name") {
  OpLog log{.backend = &cpu_ops()};
  int64_t kinds = 0;
  for (int times = 1; times <= 3; ++times) {
    kinds = 0;
    each_op([&](const char* name, auto op, const auto& args) {
      (meta_ops().*op)(args, {.threads = 1, .log = &log});
      INFO(std::string(name));
      const OpCount& n = log.ops.at(name);
      CHECK(n.calls == times);
      CHECK(n.cost.flops == times * cost(args).flops);
      CHECK(n.cost.bytes_read == times * cost(args).bytes_read);
      CHECK(n.cost.bytes_written == times * cost(args).bytes_written);
      ++kinds;
    });
  }
  CHECK(log.ops.size() == static_cast<size_t>(kinds));
  // The table holds the name, the counted ops, six sizes and read: none was forgotten above.
  CHECK(sizeof(Ops) == sizeof(void*) * static_cast<size_t>(1 + kinds + 6 + 1));
  CHECK(log.first_bad.empty());
}

// Plans are made of ops apart, whatever a backend has in one.
TEST_CASE("meta ops count a product with gelu as the product and the gelu") {
  void* const p = nowhere();
  void* const q = reinterpret_cast<void*>(uintptr_t{0x80});
  const DType t = DType::bf16;
  const auto counted = [](const Gemm& g, std::vector<OpCall>* calls) {
    OpLog log{.backend = &cpu_ops(), .scope = "block 3"};
    log.calls = calls;
    meta_ops().gemm(g, {.threads = 1, .log = &log});
    return log.ops;
  };
  const Gemm plain{.c = p, .a = p, .b = p, .m = 3, .n = 5, .k = 7, .t = t, .ct = t};
  Gemm gelu = plain, slope = plain;
  gelu.gelu = q, slope.gelu_slope_of = q;
  const auto check = [&](const Gemm& g, const char* second, const Cost& price) {
    std::vector<OpCall> calls;
    const auto ops = counted(g, &calls);
    REQUIRE(ops.size() == 2);
    CHECK(ops.at("gemm").cost.flops == cost(plain).flops);
    CHECK(ops.at("gemm").cost.bytes_written == cost(plain).bytes_written);
    CHECK(ops.at(second).cost.flops == price.flops);
    CHECK(ops.at(second).cost.bytes_read == price.bytes_read);
    REQUIRE(calls.size() == 2);
    CHECK(calls[0].op == "gemm");
    CHECK(calls[1].op == second);
    CHECK(calls[1].shape == OpShape{15, 1, 0});
  };
  check(gelu, "gelu_fwd", cost(GeluFwd{.n = 15, .t = t}));
  check(slope, "gelu_bwd", cost(GeluBwd{.n = 15, .t = t}));
}

TEST_CASE("meta read fills with ones and is counted") {
  OpLog log{.backend = &cpu_ops()};
  float f[3] = {5, 6, 7};
  double d[2] = {5, 6};
  int64_t i[2] = {5, 6};
  const Stream s{.threads = 1, .log = &log};
  meta_ops().read({.host = f, .device = nowhere(), .n = 2, .t = DType::f32}, s);
  meta_ops().read({.host = d, .device = nowhere(), .n = 2, .t = DType::f64}, s);
  meta_ops().read({.host = i, .device = nowhere(), .n = 1, .t = DType::i64}, s);
  CHECK((f[0] == 1 && f[1] == 1 && f[2] == 7));
  CHECK((d[0] == 1 && d[1] == 1));
  CHECK((i[0] == 1 && i[1] == 6));
  CHECK(log.ops.at("read").calls == 3);
  CHECK(log.ops.at("read").cost.bytes_read == 8 + 16 + 8);
}

TEST_CASE("meta sizes are the backend's") {
  each_table_and_type([](const Ops& ops, DType t) {
    OpLog log{.backend = &ops};
    const Stream s{.threads = 3, .log = &log};
    const void* const p = nowhere();
    const Gemm g{.c = nowhere(), .a = p, .b = p, .m = 65, .n = 129, .k = 257, .t = t, .ct = t};
    const GemmPack pack{.packed = nowhere(), .b = p, .n = 129, .k = 257, .src_t = DType::f32, .t = t};
    const AttentionBwd a{.cu_seqlens = kCu, .n_seq = 3, .heads = 4, .kv_heads = 2, .d = 8, .t = t};
    CHECK(meta_ops().gemm_workspace(g, s) == ops.gemm_workspace(g, s));
    CHECK(meta_ops().packed_bytes(pack, s) == ops.packed_bytes(pack, s));
    CHECK(meta_ops().attention_workspace(a, s) == ops.attention_workspace(a, s));
    const QuantPack quant{.packed = nowhere(), .b = nowhere<float>(), .n = 129, .k = 257, .group = 128};
    const QuantGemm product{
        .c = nowhere(), .a = p, .b_packed = p, .m = 65, .n = 129, .k = 257, .group = 128, .t = t, .ct = t};
    const PagedAttention paged{.heads = 4, .kv_heads = 2, .d = 8, .t = t};
    CHECK(meta_ops().quant_packed_bytes(quant, s) == ops.quant_packed_bytes(quant, s));
    CHECK(meta_ops().quant_gemm_workspace(product, s) == ops.quant_gemm_workspace(product, s));
    CHECK(meta_ops().paged_attention_workspace(paged, s) == ops.paged_attention_workspace(paged, s));
    CHECK(log.ops.empty());
  });
}

TEST_CASE("meta ops refuse a stream without a log") {
  CHECK_THROWS(meta_ops().zero({nowhere(), 1}, {}));
  OpLog none;
  CHECK_THROWS(meta_ops().packed_bytes({.n = 1, .k = 1, .t = DType::f32}, {.threads = 1, .log = &none}));
}

}  // namespace
}  // namespace rw::test
