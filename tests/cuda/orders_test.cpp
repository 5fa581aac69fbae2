// Which thread runs first changes no bit: every op of the cuda table at odd sizes, in each type, with operands at a
// multiple of 16 bytes and one element past it, in the four orders of the simulator.
#include <functional>
#include <memory>

#include "tests/cuda/cuda_tables.h"
#include "tests/kernels/array.h"

namespace rw::test {
namespace {

// Bytes between canaries, `shift` past a multiple of 64.
class Buffer {
 public:
  Buffer(int64_t bytes, int64_t shift)
      : bytes_(static_cast<size_t>(bytes)),
        shift_(static_cast<size_t>(shift)),
        store_(bytes_ + 2 * kGuard + 128, kCanary) {}
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  char* data() { return store_.data() + begin(); }
  float* f32() { return reinterpret_cast<float*>(data()); }
  std::vector<char> contents() { return {data(), data() + bytes_}; }
  void set(const std::vector<char>& bytes) { std::copy(bytes.begin(), bytes.end(), data()); }
  bool canaries_alive() {
    const auto is_canary = [](char c) { return c == kCanary; };
    const auto at = store_.begin() + static_cast<std::ptrdiff_t>(begin());
    return std::all_of(store_.begin(), at, is_canary) &&
           std::all_of(at + static_cast<std::ptrdiff_t>(bytes_), store_.end(), is_canary);
  }

 private:
  static constexpr size_t kGuard = 256;
  static constexpr char kCanary = 0x5a;
  size_t begin() const {
    const size_t past = (reinterpret_cast<uintptr_t>(store_.data()) + kGuard) % 64;
    return kGuard + (past == 0 ? 0 : 64 - past) + shift_;
  }
  size_t bytes_, shift_;
  std::vector<char> store_;
};

enum class At : uint8_t { aligned, shifted };

// The operands of one op of a type, alive until the op has been looked at.
class Case {
 public:
  Case(DType t, At at) : t_(t), at_(at) {}
  DType t() const { return t_; }

  // Uniform in [-range, range).
  Buffer& random(DType t, int64_t n, double range = 1) {
    Buffer& b = space(t, n);
    const Array values(t, n, ++seed_, range);
    std::memcpy(b.data(), values.data(), static_cast<size_t>(n * dtype_bytes(t)));
    inputs_.push_back({&b, b.contents()});
    return b;
  }
  // To be written; what it holds before is NaN, or what random() and set_ids() gave.
  Buffer& result(DType t, int64_t n) {
    Buffer& b = space(t, n);
    std::memset(b.data(), 0xff, static_cast<size_t>(n * dtype_bytes(t)));
    return written(b);
  }
  Buffer& written(Buffer& b) {
    results_.push_back({&b, b.contents()});
    return b;
  }
  // 64-byte aligned, as workspaces and packed weights are.
  Buffer& workspace(int64_t bytes) {
    buffers_.push_back(std::make_unique<Buffer>(bytes, 0));
    return *buffers_.back();
  }
  template <class T>
  const T* numbers(const std::vector<T>& values) {
    Buffer& b = workspace(static_cast<int64_t>(values.size() * sizeof(T)));
    std::memcpy(b.data(), values.data(), values.size() * sizeof(T));
    return reinterpret_cast<const T*>(b.data());
  }

  // Runs in each order from the same beginning; every result is written and is the same.
  void check(const char* op, const std::function<void(const Ops&)>& run) {
    INFO(std::string(op) << " " << dtype_name(t_) << (at_ == At::shifted ? " shifted" : " aligned"));
    std::vector<std::vector<char>> first;
    in_each_order([&] {
      for (const auto& [buffer, bytes] : results_) buffer->set(bytes);
      run(waited_cuda_ops());
      std::vector<std::vector<char>> found;
      for (const auto& [buffer, before] : results_) {
        found.push_back(buffer->contents());
        CHECK(found.back() != before);
      }
      if (first.empty()) first = found;
      CHECK(found == first);
    });
    for (const auto& b : buffers_) CHECK(b->canaries_alive());
    for (const auto& [buffer, bytes] : inputs_) {
      const bool is_result =
          std::any_of(results_.begin(), results_.end(), [&, b = buffer](const auto& r) { return r.buffer == b; });
      CHECK((is_result || buffer->contents() == bytes));
    }
  }

 private:
  struct Held {
    Buffer* buffer;
    std::vector<char> bytes;
  };
  Buffer& space(DType t, int64_t n) {
    buffers_.push_back(std::make_unique<Buffer>(n * dtype_bytes(t), at_ == At::shifted ? dtype_bytes(t) : 0));
    return *buffers_.back();
  }
  DType t_;
  At at_;
  uint64_t seed_ = 0;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<Held> inputs_, results_;
};

template <class F>
void each_case(const F& f) {
  for (const DType t : kActivations)
    for (const At at : {At::aligned, At::shifted}) f([=] { return Case(t, at); });
}
constexpr DType kF32 = DType::f32;

TEST_CASE("four orders: products") {
  const int64_t m = 17, n = 33, k = 37;
  each_case([&](auto make) {
    for (const DType ct : {make().t(), kF32}) {
      Case c = make();
      Gemm g{.c = c.result(ct, m * n).data(),
             .a = c.random(c.t(), m * k).data(),
             .b = c.random(c.t(), n * k).data(),
             .bias = c.random(kF32, n).f32(),
             .m = m,
             .n = n,
             .k = k,
             .b_trans = Trans::yes,
             .t = c.t(),
             .ct = ct};
      g.workspace = c.workspace(waited_cuda_ops().gemm_workspace(g, {})).data();
      c.check("gemm", [&](const Ops& ops) { ops.gemm(g, {}); });
    }
    for (const DType source : {make().t(), kF32}) {
      Case c = make();
      GemmPack p{.packed = nullptr,
                 .b = c.random(source, n * k).data(),
                 .n = n,
                 .k = k,
                 .b_trans = Trans::yes,
                 .src_t = source,
                 .t = c.t()};
      p.packed = c.written(c.workspace(waited_cuda_ops().packed_bytes(p, {}))).data();
      c.check("gemm_pack", [&](const Ops& ops) { ops.gemm_pack(p, {}); });
    }
    Case c = make();
    Buffer& d_bias = c.written(c.random(kF32, n));
    Buffer& d_y = c.random(c.t(), 101 * n);
    c.check("bias_bwd", [&](const Ops& ops) {
      ops.bias_bwd(
          {.d_bias = d_bias.f32(), .d_y = d_y.data(), .rows = 101, .n = n, .t = c.t(), .write = Write::accumulate}, {});
    });
  });
}

TEST_CASE("four orders: quantised weights") {
  const int64_t n = 67, k = 331;
  each_case([&](auto make) {
    for (const QuantBits bits : {QuantBits::int8, QuantBits::int4}) {
      const int64_t group = default_quant_group(bits);
      for (const int64_t m : {3, 37}) {
        Case c = make();
        QuantPack p{.packed = nullptr, .b = c.random(kF32, n * k).f32(), .n = n, .k = k, .bits = bits, .group = group};
        p.packed = c.written(c.workspace(waited_cuda_ops().quant_packed_bytes(p, {}))).data();
        QuantGemm g{.c = c.result(c.t(), m * n).data(),
                    .a = c.random(c.t(), m * k).data(),
                    .b_packed = p.packed,
                    .bias = c.random(kF32, n).f32(),
                    .m = m,
                    .n = n,
                    .k = k,
                    .bits = bits,
                    .group = group,
                    .t = c.t(),
                    .ct = c.t()};
        g.workspace = c.workspace(waited_cuda_ops().quant_gemm_workspace(g, {})).data();
        Buffer& b = c.result(kF32, n * k);
        c.check("quant_pack, quant_unpack, quant_gemm", [&](const Ops& ops) {
          ops.quant_pack(p, {});
          ops.quant_unpack({.b = b.f32(), .packed = p.packed, .n = n, .k = k, .bits = bits, .group = group}, {});
          ops.quant_gemm(g, {});
        });
      }
    }
  });
}

TEST_CASE("four orders: norms") {
  const int64_t rows = 13, width = 331, n = rows * width;
  each_case([&](auto make) {
    for (const NormKind kind : {NormKind::rms, NormKind::layer}) {
      const bool layer = kind == NormKind::layer;
      Case c = make();
      const NormFwd f{.y = c.result(c.t(), n).data(),
                      .mean = layer ? c.result(kF32, rows).f32() : nullptr,
                      .rstd = c.result(kF32, rows).f32(),
                      .x = c.random(c.t(), n).data(),
                      .add = c.random(c.t(), n).data(),
                      .sum = c.result(c.t(), n).data(),
                      .w = c.random(kF32, width).f32(),
                      .b = layer ? c.random(kF32, width).f32() : nullptr,
                      .rows = rows,
                      .c = width,
                      .eps = 1e-5F,
                      .kind = kind,
                      .t = c.t()};
      const NormBwd b{.d_x = c.result(c.t(), n).data(),
                      .d_w = c.written(c.random(kF32, width)).f32(),
                      .d_b = layer ? c.written(c.random(kF32, width)).f32() : nullptr,
                      .d_y = c.random(c.t(), n).data(),
                      .x = f.sum,
                      .d_res = c.random(c.t(), n).data(),
                      .mean = f.mean,
                      .rstd = f.rstd,
                      .w = f.w,
                      .rows = rows,
                      .c = width,
                      .kind = kind,
                      .t = c.t()};
      c.check("norm_fwd, norm_bwd", [&](const Ops& ops) { ops.norm_fwd(f, {}), ops.norm_bwd(b, {}); });
    }
  });
}

TEST_CASE("four orders: rope, activations and embeddings") {
  each_case([](auto make) {
    {
      const int64_t rows = 7, heads = 3, d = 10;
      Case c = make();
      const Rope r{.x = c.written(c.random(c.t(), rows * heads * d)).data(),
                   .pos = c.numbers<int32_t>({3, 1, 4, 1, 5, 9, 2}),
                   .cos = c.random(kF32, 10 * d / 2).f32(),
                   .sin = c.random(kF32, 10 * d / 2).f32(),
                   .rows = rows,
                   .heads = heads,
                   .d = d,
                   .t = c.t()};
      c.check("rope", [&](const Ops& ops) { ops.rope(r, {}); });
    }
    {
      const int64_t rows = 11, f = 97, n = rows * f;
      Case c = make();
      Buffer &x = c.random(c.t(), 2 * n, 4), &d_y = c.random(c.t(), n);
      Buffer &gelu = c.result(c.t(), n), &d_gelu = c.result(c.t(), n);
      Buffer &swiglu = c.result(c.t(), n), &d_swiglu = c.result(c.t(), 2 * n);
      c.check("gelu, swiglu", [&](const Ops& ops) {
        ops.gelu_fwd({.y = gelu.data(), .x = x.data(), .n = n, .t = c.t()}, {});
        ops.gelu_bwd({.d_x = d_gelu.data(), .d_y = d_y.data(), .x = x.data(), .n = n, .t = c.t()}, {});
        ops.swiglu_fwd({.y = swiglu.data(), .x = x.data(), .rows = rows, .f = f, .t = c.t()}, {});
        ops.swiglu_bwd({.d_x = d_swiglu.data(), .d_y = d_y.data(), .x = x.data(), .rows = rows, .f = f, .t = c.t()},
                       {});
      });
    }
    {
      const int64_t rows = 7, width = 37, v = 13;
      Case c = make();
      const auto* id = c.numbers<int32_t>({5, 12, 5, 0, 7, 5, 12});
      const auto* pos = c.numbers<int32_t>({0, 1, 2, 0, 1, 2, 0});
      Buffer &x = c.result(c.t(), rows * width), &d_x = c.random(c.t(), rows * width);
      Buffer &table = c.written(c.random(kF32, v * width)), &pos_table = c.written(c.random(kF32, 3 * width));
      c.check("embedding_fwd, embedding_bwd", [&](const Ops& ops) {
        ops.embedding_fwd({.x = x.data(),
                           .table = table.data(),
                           .pos_table = pos_table.f32(),
                           .id = id,
                           .pos = pos,
                           .rows = rows,
                           .c = width,
                           .t = c.t()},
                          {});
        ops.embedding_bwd({.d_table = table.f32(),
                           .d_pos_table = pos_table.f32(),
                           .d_x = d_x.data(),
                           .id = id,
                           .pos = pos,
                           .rows = rows,
                           .c = width,
                           .t = c.t()},
                          {});
      });
    }
  });
}

TEST_CASE("four orders: loss, optimizer, elementwise") {
  each_case([](auto make) {
    {
      const int64_t rows = 5, v = 1009;
      Case c = make();
      const auto* target = c.numbers<int32_t>({0, 1008, -1, 500, 7});
      Buffer &logits = c.written(c.random(c.t(), rows * v, 8)), &part = c.result(kF32, rows * 3),
             &loss = c.result(kF32, rows);
      c.check("cross_entropy", [&](const Ops& ops) {
        ops.cross_entropy_part(
            {.part = part.f32(), .logits = logits.data(), .target = target, .rows = rows, .v = v, .t = c.t()}, {});
        ops.cross_entropy_finish({.loss = loss.f32(),
                                  .logits = logits.data(),
                                  .parts = part.f32(),
                                  .n_parts = 1,
                                  .target = target,
                                  .rows = rows,
                                  .v = v,
                                  .d_scale = 0.25F,
                                  .t = c.t()},
                                 {});
      });
    }
    {
      const int64_t n = 1009, block = 100, blocks = (n + block - 1) / block;
      Case c = make();
      Buffer &p = c.written(c.random(kF32, n)), &m = c.written(c.random(kF32, n)), &v = c.written(c.random(kF32, n));
      for (int64_t i = 0; i < n; ++i) v.f32()[i] = std::abs(v.f32()[i]);
      Buffer &g = c.random(kF32, n), &squares = c.result(DType::f64, blocks);
      c.check("adamw, sum_squares", [&](const Ops& ops) {
        ops.sum_squares({.partial = reinterpret_cast<double*>(squares.data()), .x = g.f32(), .n = n, .block = block},
                        {});
        ops.adamw({.p = p.f32(),
                   .m = m.f32(),
                   .v = v.f32(),
                   .g = g.f32(),
                   .n = n,
                   .lr = 0.1F,
                   .beta1 = 0.9F,
                   .beta2 = 0.95F,
                   .eps = 1e-8F,
                   .weight_decay = 0.1F,
                   .grad_scale = 0.5F,
                   .step = 3},
                  {});
      });
    }
    {
      const int64_t n = 1009;
      Case c = make();
      Buffer &a = c.random(c.t(), n), &b = c.random(c.t(), n), &sum = c.result(c.t(), n),
             &scaled = c.written(c.random(c.t(), n));
      Buffer &wide = c.result(kF32, n), &narrow = c.result(c.t(), n), &zeros = c.result(DType::i8, n),
             &host = c.result(kF32, n);
      c.check("add, scale, cast, zero, read", [&](const Ops& ops) {
        ops.add({.y = sum.data(), .a = a.data(), .b = b.data(), .n = n, .t = c.t()}, {});
        ops.scale({.y = scaled.data(), .s = 0.3F, .n = n, .t = c.t()}, {});
        ops.cast({.y = wide.data(), .x = sum.data(), .n = n, .yt = kF32, .xt = c.t()}, {});
        ops.cast({.y = narrow.data(), .x = wide.data(), .n = n, .yt = c.t(), .xt = kF32}, {});
        ops.zero({.y = zeros.data(), .bytes = n}, {});
        ops.read({.host = host.data(), .device = wide.data(), .n = n, .t = kF32}, {});
      });
    }
  });
}

TEST_CASE("four orders: sampling") {
  const int64_t v = 1537, n = 3, most_best = 100;
  for (const At at : {At::aligned, At::shifted}) {
    Case c(kF32, at);
    // Of the second row more are equal than are sorted at once.
    std::vector<float> z(2 * v + 1, 5.5F);
    for (size_t i = 0; i < z.size(); ++i)
      if (i <= v || i % 2 == 1) z[i] = static_cast<float>(i * 37 % 1000) / 200;
    const float* const logits = c.numbers(z) + (at == At::shifted ? 1 : 0);
    const auto* ask = c.numbers<SampleAsk>({{.share = 0.6, .inv_t = 1, .row = 0, .n_best = 100, .raw_sum = 1},
                                            {.share = 0.01, .inv_t = 2, .row = 1, .n_best = 99},
                                            {.row = 1, .n_best = 1, .column = 3}});
    Buffer& facts = c.written(c.workspace(n * static_cast<int64_t>(sizeof(SampleFacts))));
    Buffer &best_z = c.result(kF32, n * most_best), &best_column = c.result(kF32, n * most_best);
    c.check("sample_scan", [&](const Ops& ops) {
      ops.sample_scan({.facts = reinterpret_cast<SampleFacts*>(facts.data()),
                       .best_z = best_z.f32(),
                       .best_column = reinterpret_cast<int32_t*>(best_column.data()),
                       .logits = logits,
                       .ask = ask,
                       .n = n,
                       .v = v,
                       .most_best = most_best},
                      {});
    });
  }
}

TEST_CASE("four orders: attention over packed sequences") {
  const int64_t rows = 37, heads = 4, kv_heads = 2;
  each_case([&](auto make) {
    for (const int64_t d : {64, 80}) {
      Case c = make();
      const auto* cu_seqlens = c.numbers<int32_t>({0, 19, 20, 37});
      const int64_t n = rows * heads * d, n_kv = rows * kv_heads * d;
      const float scale = 1 / std::sqrt(static_cast<float>(d));
      Buffer &q = c.random(c.t(), n), &k = c.random(c.t(), n_kv), &v = c.random(c.t(), n_kv), &d_o = c.random(c.t(), n);
      Buffer &o = c.result(c.t(), n), &lse = c.result(kF32, rows * heads);
      AttentionBwd b{.d_q = c.result(c.t(), n).data(),
                     .d_k = c.result(c.t(), n_kv).data(),
                     .d_v = c.result(c.t(), n_kv).data(),
                     .d_o = d_o.data(),
                     .q = q.data(),
                     .k = k.data(),
                     .v = v.data(),
                     .o = o.data(),
                     .lse = lse.f32(),
                     .cu_seqlens = cu_seqlens,
                     .n_seq = 3,
                     .heads = heads,
                     .kv_heads = kv_heads,
                     .d = d,
                     .scale = scale,
                     .t = c.t()};
      b.workspace = c.workspace(waited_cuda_ops().attention_workspace(b, {})).data();
      c.check("attention_fwd, attention_bwd", [&](const Ops& ops) {
        ops.attention_fwd({.o = o.data(),
                           .lse = lse.f32(),
                           .q = q.data(),
                           .k = k.data(),
                           .v = v.data(),
                           .cu_seqlens = cu_seqlens,
                           .n_seq = 3,
                           .heads = heads,
                           .kv_heads = kv_heads,
                           .d = d,
                           .scale = scale,
                           .t = c.t(),
                           .workspace = b.workspace},
                          {});
        ops.attention_bwd(b, {});
      });
    }
  });
}

TEST_CASE("four orders: attention over pages") {
  const int64_t heads = 6, kv_heads = 2, d = 64, page_tokens = 16, pages = 5, context = 37;
  each_case([&](auto make) {
    for (const DType kv_t : {make().t(), DType::i8}) {
      Case c = make();
      // Two sequences of 37 and 20 tokens: all of them written, the last 5 and 1 asked.
      std::vector<int64_t> slots;
      for (int64_t i = 0; i < context; ++i) slots.push_back(i + 16);
      for (int64_t i = 0; i < 16; ++i) slots.push_back(i);
      for (int64_t i = 0; i < 4; ++i) slots.push_back(64 + i);
      const auto written = static_cast<int64_t>(slots.size()), cells = pages * page_tokens * kv_heads;
      const KvWrite w{.k_pages = c.result(kv_t, cells * d).data(),
                      .v_pages = c.result(kv_t, cells * d).data(),
                      .k = c.random(c.t(), written * kv_heads * d).data(),
                      .v = c.random(c.t(), written * kv_heads * d).data(),
                      .slot = c.numbers(slots),
                      .rows = written,
                      .kv_heads = kv_heads,
                      .d = d,
                      .t = c.t(),
                      .kv_t = kv_t,
                      .k_scales = kv_t == DType::i8 ? c.result(kF32, cells).f32() : nullptr,
                      .v_scales = kv_t == DType::i8 ? c.result(kF32, cells).f32() : nullptr};
      PagedAttention p{.o = c.result(c.t(), 6 * heads * d).data(),
                       .q = c.random(c.t(), 6 * heads * d).data(),
                       .k_pages = w.k_pages,
                       .v_pages = w.v_pages,
                       .page_table = c.numbers<int32_t>({1, 2, 3, 0, 4, 0}),
                       .q_start = c.numbers<int32_t>({0, 5, 6}),
                       .context_len = c.numbers<int32_t>({37, 20}),
                       .n_seq = 2,
                       .max_pages = 3,
                       .page_tokens = page_tokens,
                       .heads = heads,
                       .kv_heads = kv_heads,
                       .d = d,
                       .scale = 0.125F,
                       .t = c.t(),
                       .kv_t = kv_t,
                       .k_scales = w.k_scales,
                       .v_scales = w.v_scales};
      p.workspace = c.workspace(waited_cuda_ops().paged_attention_workspace(p, {})).data();
      c.check("kv_write, paged_attention", [&](const Ops& ops) { ops.kv_write(w, {}), ops.paged_attention(p, {}); });
    }
  });
}

}  // namespace
}  // namespace rw::test
