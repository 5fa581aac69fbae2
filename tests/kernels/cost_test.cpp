#include "tests/kernels/array.h"

namespace rw::test {
namespace {

void check_cost(const Cost& c, double flops, double read, double written) {
  CHECK(c.flops == flops);
  CHECK(c.bytes_read == read);
  CHECK(c.bytes_written == written);
}

// Counted by hand from the contracts in kernels/ops.h.
TEST_CASE("cost of the streaming ops") {
  const DType bf16 = DType::bf16, f32 = DType::f32;
  check_cost(cost(Add{nullptr, nullptr, nullptr, 10, bf16}), 10, 40, 20);
  check_cost(cost(Scale{nullptr, 2, 10, f32}), 10, 40, 40);
  check_cost(cost(Cast{nullptr, nullptr, 10, bf16, f32}), 0, 40, 20);
  check_cost(cost(SumSquares{nullptr, nullptr, 10, 4}), 20, 40, 24);
  check_cost(cost(AdamW{.n = 10}), 140, 160, 120);
  check_cost(cost(BiasBwd{.rows = 3, .n = 5, .t = bf16, .write = Write::overwrite}), 15, 30, 20);
  check_cost(cost(BiasBwd{.rows = 3, .n = 5, .t = bf16, .write = Write::accumulate}), 15, 50, 20);
  check_cost(cost(Rope{.rows = 3, .heads = 2, .d = 4, .t = bf16}), 72, 48 + 3 * (16 + 4), 48);
  CHECK(cost(GeluFwd{.n = 10, .t = bf16}).bytes_read == 20);
  CHECK(cost(GeluBwd{.n = 10, .t = bf16}).bytes_read == 40);
  CHECK(cost(SwigluFwd{.rows = 2, .f = 5, .t = bf16}).bytes_written == 20);
  CHECK(cost(SwigluBwd{.rows = 2, .f = 5, .t = bf16}).bytes_written == 40);
  check_cost(cost(EmbeddingFwd{.rows = 3, .c = 5, .t = bf16}), 0, 60 + 12, 30);
  check_cost(cost(EmbeddingFwd{.rows = 3, .c = 5, .t = f32, .table_t = bf16}), 0, 30 + 12, 60);
  float table = 0;
  check_cost(cost(EmbeddingBwd{.d_table = &table, .rows = 3, .c = 5, .t = bf16}), 15, 30 + 60 + 12, 60);
  check_cost(cost(EmbeddingBwd{.d_table = &table, .d_pos_table = &table, .rows = 3, .c = 5, .t = bf16}), 30,
             30 + 2 * (60 + 12), 120);
  check_cost(cost(Zero{nullptr, 10}), 0, 0, 10);
  check_cost(cost(Read{nullptr, nullptr, 10, DType::f64}), 0, 80, 80);
}

TEST_CASE("cost of norms and the loss grows by what is asked for") {
  char some[8] = {};
  float* const f = reinterpret_cast<float*>(some);
  NormFwd fwd{.rows = 3, .c = 5, .kind = NormKind::rms, .t = DType::bf16};
  CHECK(cost(fwd).bytes_read == 30 + 20);
  CHECK(cost(fwd).bytes_written == 30 + 12);
  fwd.add = some;
  CHECK(cost(fwd).bytes_read == 60 + 20);
  CHECK(cost(fwd).bytes_written == 60 + 12);
  NormBwd bwd{.rows = 3, .c = 5, .kind = NormKind::rms, .t = DType::bf16};
  CHECK(cost(bwd).bytes_written == 0);
  bwd.d_x = some;
  CHECK(cost(bwd).bytes_written == 30);
  bwd.d_w = f;
  CHECK(cost(bwd).bytes_written == 50);
  const double without = cost(bwd).bytes_read;
  bwd.write = Write::overwrite;
  CHECK(cost(bwd).bytes_read == without - 20);
  check_cost(cost(CrossEntropyPart{.rows = 3, .v = 7, .t = DType::bf16}), 84, 42 + 12, 36);
  CrossEntropyFinish loss{.n_parts = 2, .rows = 3, .v = 7, .d_scale = 0, .t = DType::f32};
  check_cost(cost(loss), 0, 2 * 36 + 12, 12);
  loss.d_scale = 1;
  check_cost(cost(loss), 63, 2 * 36 + 12 + 84, 12 + 84);
}

TEST_CASE("cost of a product with gelu: what is written beside c, what the slope is read from") {
  char c[1] = {}, other[1] = {};
  Gemm g{.c = c, .a = nullptr, .m = 3, .n = 5, .k = 7, .t = DType::bf16, .ct = DType::bf16};
  const double product = 2 * 3 * 5 * 7, read = 2 * (3 * 7 + 7 * 5), elements = 3 * 5;
  check_cost(cost(g), product, read, 2 * elements);
  g.gelu = other;
  check_cost(cost(g), product + 9 * elements, read, 4 * elements);
  g.gelu = c;
  check_cost(cost(g), product + 9 * elements, read, 2 * elements);
  g.gelu = nullptr, g.gelu_slope_of = other;
  check_cost(cost(g), product + 16 * elements, read + 2 * elements, 2 * elements);
}

TEST_CASE("cost of attention counts the causal half of each sequence") {
  const int32_t cu_seqlens[] = {0, 8, 8, 12};
  AttentionFwd fwd{.cu_seqlens = cu_seqlens, .n_seq = 3, .heads = 4, .kv_heads = 2, .d = 16, .t = DType::bf16};
  const double pairs = 4 * (8 * 8 / 2 + 4 * 4 / 2);
  check_cost(cost(fwd), 4 * 16 * pairs, 12 * 16 * 8 * 2, 12 * 4 * 16 * 2 + 12 * 4 * 4);
  AttentionBwd bwd{.cu_seqlens = cu_seqlens, .n_seq = 3, .heads = 4, .kv_heads = 2, .d = 16, .t = DType::bf16};
  CHECK(cost(bwd).flops == 10 * 16 * pairs);
  CHECK(cost(bwd).bytes_written == 12 * 16 * 8 * 2);
  fwd.n_seq = 0;
  check_cost(cost(fwd), 0, 0, 0);
}

TEST_CASE("cost of paged attention: a token sees its context, a prompt the triangle before it") {
  const int32_t q_start[] = {0, 1, 4}, context_len[] = {10, 3};
  const PagedAttention a{
      .q_start = q_start, .context_len = context_len, .n_seq = 2, .heads = 4, .kv_heads = 2, .d = 16, .t = DType::bf16};
  CHECK(cost(a).flops == 4 * 16 * 4 * (10 + 1 + 2 + 3));
  CHECK(cost(a).bytes_read == 2 * 16 * (4 * 4 + 2 * 13 * 2));
  CHECK(cost(a).bytes_written == 2 * 16 * 4 * 4);
  CHECK(cost(KvWrite{.rows = 3, .kv_heads = 2, .d = 16, .t = DType::f32}).bytes_written == 3 * 2 * 2 * 16 * 4);
}

// 8 bits: a byte an element, 4 for the scale of a token and kv head.
TEST_CASE("cost of pages of 8 bits") {
  const int32_t q_start[] = {0, 1, 4}, context_len[] = {10, 3};
  const PagedAttention a{.q_start = q_start,
                         .context_len = context_len,
                         .n_seq = 2,
                         .heads = 4,
                         .kv_heads = 2,
                         .d = 16,
                         .t = DType::bf16,
                         .kv_t = DType::i8};
  CHECK(cost(a).bytes_read == 2 * 16 * 4 * 4 + 2 * 13 * 2 * (16 + 4));
  const KvWrite w{.rows = 3, .kv_heads = 2, .d = 16, .t = DType::bf16, .kv_t = DType::i8};
  check_cost(cost(w), 0, 3 * 2 * 2 * 16 * 2 + 3 * 8, 3 * 2 * 2 * (16 + 4));
}

// A group of 128 has a scale of 2 bytes; four groups of 32 share one and have 4 bits each.
TEST_CASE("cost of quantised products") {
  QuantGemm g{.m = 3, .n = 5, .k = 256, .bits = QuantBits::int8, .group = 128, .t = DType::bf16, .ct = DType::f32};
  check_cost(cost(g), 2 * 3 * 5 * 256, 3 * 256 * 2 + 5 * (256 + 2 * 2), 3 * 5 * 4);
  g.bits = QuantBits::int4, g.group = 32;
  CHECK(cost(g).bytes_read == 3 * 256 * 2 + 5 * (128 + 2 * 2 + 8 / 2));
  check_cost(cost(QuantPack{.n = 5, .k = 256, .bits = QuantBits::int8, .group = 128}), 0, 4 * 5 * 256, 5 * 260);
  check_cost(cost(QuantUnpack{.n = 5, .k = 256, .bits = QuantBits::int8, .group = 128}), 5 * 256, 5 * 260, 4 * 5 * 256);
}

}  // namespace
}  // namespace rw::test
