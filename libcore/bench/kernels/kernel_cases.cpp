#include "libcore/bench/kernels/kernel_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "libcore/model/ends.h"

namespace rw {
namespace {

// Operands of one case. Numbers are small and not all alike: zeros would let a processor clock higher.
class Operands {
 public:
  explicit Operands(const KernelSetting& s) : s_(s), arena_(std::make_shared<Arena>(s.device.memory())) {}
  void* numbers(int64_t n) { return numbers_of(n, s_.t); }
  float* floats(int64_t n) { return static_cast<float*>(numbers_of(n, DType::f32)); }
  int32_t* indices(int64_t n, int64_t below) {
    return made<int32_t>(n, [=](int64_t i) { return i * 7919 % below; }).device;
  }
  // f(i) at i.
  template <typename T, typename F>
  Mirrored<T> made(int64_t n, const F& f) {
    const Mirrored<T> m = arena_->take_mirrored<T>(n, MemoryOwner::workspace);
    for (int64_t i = 0; i < n; ++i) m.host[i] = static_cast<T>(f(i));
    s_.device.ops().upload({.device = m.device, .host = m.host, .bytes = n * static_cast<int64_t>(sizeof(T))},
                           s_.device.stream());
    return m;
  }
  void* bytes(int64_t n) { return arena_->take(n, MemoryOwner::workspace, s_.device.stream().threads); }
  std::shared_ptr<Arena> memory() const { return arena_; }

 private:
  void* numbers_of(int64_t n, DType t) {
    const bool is_far = s_.device.memory() != nullptr;
    void* p = bytes(n * dtype_bytes(t));
    std::vector<char> staged(static_cast<size_t>(is_far ? n * dtype_bytes(t) : 0));
    void* at = is_far ? staged.data() : p;
    for (int64_t i = 0; i < n; ++i) {
      const float v = static_cast<float>(i * 31 % 17 - 8) * 0.0625f;  // exact in every type
      if (t == DType::f32) static_cast<float*>(at)[i] = v;
      else if (t == DType::bf16)
        static_cast<uint16_t*>(at)[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(v) >> 16);
    }
    if (is_far) {
      s_.device.ops().upload({.device = p, .host = at, .bytes = n * dtype_bytes(t)}, s_.device.stream());
      s_.device.wait();
    }
    return p;
  }

  KernelSetting s_;
  std::shared_ptr<Arena> arena_;
};

// `priced` differs from `args` in arrays of the host's alone.
template <typename Args>
KernelCase make_case(const KernelSetting& s, const Operands& operands, void (*f)(const Args&, Stream), const Args& args,
                     const Args& priced) {
  return {cost(priced), [f, args, stream = s.device.stream()] { f(args, stream); }, operands.memory()};
}
template <typename Args>
KernelCase make_case(const KernelSetting& s, const Operands& operands, void (*f)(const Args&, Stream),
                     const Args& args) {
  return make_case(s, operands, f, args, args);
}

std::string shape_text(std::initializer_list<int64_t> sizes) {
  std::string text;
  for (int64_t n : sizes) text += (text.empty() ? "" : " x ") + std::to_string(n);
  return text;
}

struct Linear {
  const char* name;
  int64_t in, out;
  int64_t ld = out;  // row stride of outputs and their gradients
};

class Cases {
 public:
  Cases(const KernelShapes& shapes, const KernelSetting& setting) : k_(shapes), m_(k_.model), s_(setting) {}

  std::vector<KernelCaseMaker> all() {
    const int64_t c = m_.width, heads = m_.heads * m_.head_dim, up = m_.ffn * (m_.gated_mlp() ? 2 : 1);
    embedding();
    norm();
    products({"qkv", c, heads + 2 * m_.kv_heads * m_.head_dim}, k_.rows);
    if (!m_.learned_position()) rope();
    attention();
    paged();
    products({"attn_out", heads, c}, k_.rows);
    products({"up", c, up}, k_.rows);
    activation();
    products({"down", m_.ffn, c}, k_.rows);
    products({"head", c, m_.vocab_size, logits_stride(m_.vocab_size)}, k_.head_rows);
    cross_entropy();
    if (m_.mlp_bias) bias(up);
    elementwise();
    if (s_.t == DType::f32) optimizer();
    return std::move(makers_);
  }

 private:
  template <typename Make>
  void add(const std::string& op, const std::string& shape, Make make) {
    makers_.push_back({op, shape, s_.t, [make, s = s_] {
                         Operands o(s);
                         return make(o);
                       }});
  }

  // Forward with packed weights, input gradient and weight gradient, as a linear layer calls them.
  void products(const Linear& l, int64_t rows) {
    const KernelSetting s = s_;
    add(fmt::format("gemm_pack {}", l.name), shape_text({l.out, l.in}),
        [=](Operands& o) { return make_case(s, o, s.device.ops().gemm_pack, to_pack(s, o, l)); });
    add(fmt::format("gemm {}", l.name), shape_text({rows, l.out, l.in}), [=](Operands& o) {
      const Gemm gemm{.c = o.numbers(rows * l.ld),
                      .a = o.numbers(rows * l.in),
                      .b_packed = packed(s, o, l),
                      .m = rows,
                      .n = l.out,
                      .k = l.in,
                      .ldc = l.ld,
                      .t = s.t,
                      .ct = s.t};
      return gemm_case(s, o, gemm);
    });
    add(fmt::format("gemm {} d_x", l.name), shape_text({rows, l.in, l.out}), [=](Operands& o) {
      const Gemm gemm{.c = o.numbers(rows * l.in),
                      .a = o.numbers(rows * l.ld),
                      .b = o.numbers(l.in * l.out),
                      .m = rows,
                      .n = l.in,
                      .k = l.out,
                      .lda = l.ld,
                      .t = s.t,
                      .ct = s.t};
      return gemm_case(s, o, gemm);
    });
    add(fmt::format("gemm {} d_w", l.name), shape_text({l.out, l.in, rows}), [=](Operands& o) {
      const Gemm gemm{.c = o.floats(l.in * l.out),
                      .a = o.numbers(rows * l.ld),
                      .b = o.numbers(rows * l.in),
                      .m = l.out,
                      .n = l.in,
                      .k = rows,
                      .lda = l.ld,
                      .a_trans = Trans::yes,
                      .t = s.t,
                      .ct = DType::f32,
                      .write = Write::accumulate};
      return gemm_case(s, o, gemm);
    });
  }

  static GemmPack to_pack(const KernelSetting& s, Operands& o, const Linear& l) {
    GemmPack pack{.b = o.numbers(l.in * l.out), .n = l.out, .k = l.in, .b_trans = Trans::yes, .src_t = s.t, .t = s.t};
    pack.packed = o.bytes(s.device.ops().packed_bytes(pack, s.device.stream()));
    return pack;
  }
  static const void* packed(const KernelSetting& s, Operands& o, const Linear& l) {
    const GemmPack pack = to_pack(s, o, l);
    s.device.ops().gemm_pack(pack, s.device.stream());
    return pack.packed;
  }
  static KernelCase gemm_case(const KernelSetting& s, Operands& o, Gemm gemm) {
    gemm.workspace = o.bytes(s.device.ops().gemm_workspace(gemm, s.device.stream()));
    return make_case(s, o, s.device.ops().gemm, gemm);
  }

  void norm() {
    const KernelSetting s = s_;
    const int64_t rows = k_.rows, c = m_.width;
    const bool layer = m_.layer_norm();
    const NormKind kind = layer ? NormKind::layer : NormKind::rms;
    const std::string name = layer ? "layer_norm" : "rms_norm";
    add(name + "_fwd", shape_text({rows, c}), [=](Operands& o) {
      return make_case(s, o, s.device.ops().norm_fwd,
                       NormFwd{.y = o.numbers(rows * c),
                               .mean = layer ? o.floats(rows) : nullptr,
                               .rstd = o.floats(rows),
                               .x = o.numbers(rows * c),
                               .add = o.numbers(rows * c),
                               .sum = o.numbers(rows * c),
                               .w = o.floats(c),
                               .b = layer ? o.floats(c) : nullptr,
                               .rows = rows,
                               .c = c,
                               .eps = 1e-5f,
                               .kind = kind,
                               .t = s.t});
    });
    add(name + "_bwd", shape_text({rows, c}), [=](Operands& o) {
      return make_case(s, o, s.device.ops().norm_bwd,
                       NormBwd{.d_x = o.numbers(rows * c),
                               .d_w = o.floats(c),
                               .d_b = layer ? o.floats(c) : nullptr,
                               .d_y = o.numbers(rows * c),
                               .x = o.numbers(rows * c),
                               .d_res = o.numbers(rows * c),
                               .mean = layer ? o.floats(rows) : nullptr,
                               .rstd = o.floats(rows),
                               .w = o.floats(c),
                               .rows = rows,
                               .c = c,
                               .kind = kind,
                               .t = s.t});
    });
  }

  void rope() {
    const KernelSetting s = s_;
    const int64_t rows = k_.rows, heads = m_.heads + m_.kv_heads, d = m_.head_dim, positions = k_.seq_len;
    add("rope", shape_text({rows, heads, d}), [=](Operands& o) {
      return make_case(s, o, s.device.ops().rope,
                       Rope{.x = o.numbers(rows * heads * d),
                            .pos = o.indices(rows, positions),
                            .cos = o.floats(positions * d / 2),
                            .sin = o.floats(positions * d / 2),
                            .rows = rows,
                            .heads = heads,
                            .d = d,
                            .t = s.t});
    });
  }

  void attention() {
    const KernelSetting s = s_;
    const int64_t rows = k_.rows, n_seq = k_.rows / k_.seq_len, h = m_.heads, kv = m_.kv_heads, d = m_.head_dim;
    const int64_t seq_len = k_.seq_len;
    // At the device's and at the host's sequences.
    struct Both {
      AttentionBwd device, host;
    };
    const float scale = 1.0f / std::sqrt(static_cast<float>(d));
    const auto backward = [=](Operands& o) -> Both {
      const Mirrored<int32_t> cu = o.made<int32_t>(n_seq + 1, [=](int64_t i) { return i * seq_len; });
      AttentionBwd a{.d_q = o.numbers(rows * h * d),
                     .d_k = o.numbers(rows * kv * d),
                     .d_v = o.numbers(rows * kv * d),
                     .d_o = o.numbers(rows * h * d),
                     .q = o.numbers(rows * h * d),
                     .k = o.numbers(rows * kv * d),
                     .v = o.numbers(rows * kv * d),
                     .o = o.numbers(rows * h * d),
                     .lse = o.floats(rows * h),
                     .cu_seqlens = cu.host,
                     .n_seq = n_seq,
                     .heads = h,
                     .kv_heads = kv,
                     .d = d,
                     .scale = scale,
                     .t = s.t};
      a.workspace = o.bytes(s.device.ops().attention_workspace(a, s.device.stream()));
      AttentionBwd far = a;
      far.cu_seqlens = cu.device;
      return {far, a};
    };
    const std::string shape = fmt::format("{} x {} of {}/{} x {}", n_seq, seq_len, h, kv, d);
    const auto forward = [=](const AttentionBwd& b) {
      return AttentionFwd{.o = const_cast<void*>(b.o),
                          .lse = const_cast<float*>(b.lse),
                          .q = b.q,
                          .k = b.k,
                          .v = b.v,
                          .cu_seqlens = b.cu_seqlens,
                          .n_seq = n_seq,
                          .heads = h,
                          .kv_heads = kv,
                          .d = d,
                          .scale = scale,
                          .t = s.t,
                          .workspace = b.workspace};
    };
    add("attention_fwd", shape, [=](Operands& o) {
      const Both b = backward(o);
      return make_case(s, o, s.device.ops().attention_fwd, forward(b.device), forward(b.host));
    });
    add("attention_bwd", shape, [=](Operands& o) {
      const Both b = backward(o);
      return make_case(s, o, s.device.ops().attention_bwd, b.device, b.host);
    });
  }

  void paged() {
    const KernelSetting s = s_;
    constexpr int64_t kPageTokens = 16;
    const int64_t n = k_.requests, context = k_.context, pages = (context + kPageTokens - 1) / kPageTokens;
    const int64_t h = m_.heads, kv = m_.kv_heads, d = m_.head_dim, pool = n * pages * kPageTokens * kv * d;
    add("kv_write", shape_text({n, kv, d}), [=](Operands& o) {
      const int64_t* slot = o.made<int64_t>(n, [=](int64_t r) { return r * pages * kPageTokens + context - 1; }).device;
      return make_case(s, o, s.device.ops().kv_write,
                       KvWrite{.k_pages = o.numbers(pool),
                               .v_pages = o.numbers(pool),
                               .k = o.numbers(n * kv * d),
                               .v = o.numbers(n * kv * d),
                               .slot = slot,
                               .rows = n,
                               .kv_heads = kv,
                               .d = d,
                               .t = s.t});
    });
    add("paged_attention", fmt::format("{} x {} of {}/{} x {}", n, context, h, kv, d), [=](Operands& o) {
      const int32_t* table = o.indices(n * pages, n * pages);
      const Mirrored<int32_t> start = o.made<int32_t>(n + 1, [](int64_t i) { return i; });
      const Mirrored<int32_t> length = o.made<int32_t>(n, [=](int64_t) { return context; });
      PagedAttention a{.o = o.numbers(n * h * d),
                       .q = o.numbers(n * h * d),
                       .k_pages = o.numbers(pool),
                       .v_pages = o.numbers(pool),
                       .page_table = table,
                       .q_start = start.host,
                       .context_len = length.host,
                       .n_seq = n,
                       .max_pages = pages,
                       .page_tokens = kPageTokens,
                       .heads = h,
                       .kv_heads = kv,
                       .d = d,
                       .scale = 1.0f / std::sqrt(static_cast<float>(d)),
                       .t = s.t};
      a.workspace = o.bytes(s.device.ops().paged_attention_workspace(a, s.device.stream()));
      PagedAttention far = a;
      far.q_start = start.device, far.context_len = length.device;
      return make_case(s, o, s.device.ops().paged_attention, far, a);
    });
  }

  void activation() {
    const KernelSetting s = s_;
    const int64_t rows = k_.rows, f = m_.ffn;
    if (m_.gated_mlp()) {
      add("swiglu_fwd", shape_text({rows, f}), [=](Operands& o) {
        return make_case(s, o, s.device.ops().swiglu_fwd,
                         SwigluFwd{o.numbers(rows * f), o.numbers(rows * 2 * f), rows, f, s.t});
      });
      add("swiglu_bwd", shape_text({rows, f}), [=](Operands& o) {
        return make_case(
            s, o, s.device.ops().swiglu_bwd,
            SwigluBwd{o.numbers(rows * 2 * f), o.numbers(rows * f), o.numbers(rows * 2 * f), rows, f, s.t});
      });
      return;
    }
    add("gelu_fwd", shape_text({rows, f}), [=](Operands& o) {
      return make_case(s, o, s.device.ops().gelu_fwd, GeluFwd{o.numbers(rows * f), o.numbers(rows * f), rows * f, s.t});
    });
    add("gelu_bwd", shape_text({rows, f}), [=](Operands& o) {
      return make_case(s, o, s.device.ops().gelu_bwd,
                       GeluBwd{o.numbers(rows * f), o.numbers(rows * f), o.numbers(rows * f), rows * f, s.t});
    });
    products_with_gelu();
  }

  // Up with its activation, and down's input gradient back through that.
  void products_with_gelu() {
    const KernelSetting s = s_;
    const int64_t rows = k_.rows, c = m_.width, f = m_.ffn;
    const Gemm product{.c = nullptr, .a = nullptr, .m = rows, .n = f, .k = c, .t = s.t, .ct = s.t};
    add("gemm_gelu up", shape_text({rows, f, c}), [=](Operands& o) {
      Gemm g = product;
      g.c = o.numbers(rows * f), g.gelu = o.numbers(rows * f);
      g.a = o.numbers(rows * c), g.b_packed = packed(s, o, {"up", c, f}), g.bias = o.floats(f);
      return gemm_case(s, o, g);
    });
    add("gemm_gelu down d_x", shape_text({rows, f, c}), [=](Operands& o) {
      Gemm g = product;
      g.c = o.numbers(rows * f), g.gelu_slope_of = o.numbers(rows * f);
      g.a = o.numbers(rows * c), g.b = o.numbers(c * f);
      return gemm_case(s, o, g);
    });
  }

  void embedding() {
    const KernelSetting s = s_;
    const int64_t rows = k_.rows, c = m_.width, v = m_.vocab_size;
    add("embedding_fwd", shape_text({rows, c}), [=](Operands& o) {
      return make_case(s, o, s.device.ops().embedding_fwd,
                       EmbeddingFwd{.x = o.numbers(rows * c),
                                    .table = o.floats(v * c),
                                    .id = o.indices(rows, v),
                                    .rows = rows,
                                    .c = c,
                                    .t = s.t});
    });
    add("embedding_bwd", shape_text({rows, c}), [=](Operands& o) {
      return make_case(s, o, s.device.ops().embedding_bwd,
                       EmbeddingBwd{.d_table = o.floats(v * c),
                                    .d_x = o.numbers(rows * c),
                                    .id = o.indices(rows, v),
                                    .rows = rows,
                                    .c = c,
                                    .t = s.t});
    });
  }

  void cross_entropy() {
    const KernelSetting s = s_;
    const int64_t rows = k_.head_rows, v = m_.vocab_size, ld = logits_stride(v);
    add("cross_entropy_part", shape_text({rows, v}), [=](Operands& o) {
      return make_case(s, o, s.device.ops().cross_entropy_part,
                       CrossEntropyPart{.part = o.floats(rows * 3),
                                        .logits = o.numbers(rows * ld),
                                        .target = o.indices(rows, v),
                                        .rows = rows,
                                        .v = v,
                                        .ld = ld,
                                        .t = s.t});
    });
    add("cross_entropy_finish", shape_text({rows, v}), [=](Operands& o) {
      const float part[3] = {1, static_cast<float>(v), 0};
      const float* parts = o.made<float>(rows * 3, [&](int64_t i) { return part[i % 3]; }).device;
      return make_case(s, o, s.device.ops().cross_entropy_finish,
                       CrossEntropyFinish{.loss = o.floats(rows),
                                          .logits = o.numbers(rows * ld),
                                          .parts = parts,
                                          .n_parts = 1,
                                          .target = o.indices(rows, v),
                                          .rows = rows,
                                          .v = v,
                                          .ld = ld,
                                          .d_scale = 1.0f / static_cast<float>(rows),
                                          .t = s.t});
    });
  }

  void bias(int64_t n) {
    const KernelSetting s = s_;
    const int64_t rows = k_.rows;
    add("bias_bwd", shape_text({rows, n}), [=](Operands& o) {
      return make_case(s, o, s.device.ops().bias_bwd,
                       BiasBwd{.d_bias = o.floats(n),
                               .d_y = o.numbers(rows * n),
                               .rows = rows,
                               .n = n,
                               .t = s.t,
                               .write = Write::overwrite});
    });
  }

  void elementwise() {
    const KernelSetting s = s_;
    const int64_t n = k_.rows * m_.width;
    add("add", shape_text({n}), [=](Operands& o) {
      return make_case(s, o, s.device.ops().add, Add{o.numbers(n), o.numbers(n), o.numbers(n), n, s.t});
    });
    add("scale", shape_text({n}), [=](Operands& o) {
      return make_case(s, o, s.device.ops().scale, Scale{o.numbers(n), 1.0f, n, s.t});
    });
    add("zero", shape_text({n}), [=](Operands& o) {
      return make_case(s, o, s.device.ops().zero, Zero{o.numbers(n), n * dtype_bytes(s.t)});
    });
    if (s.t == DType::f32) return;
    add("cast from f32", shape_text({n}), [=](Operands& o) {
      return make_case(s, o, s.device.ops().cast, Cast{o.numbers(n), o.floats(n), n, s.t, DType::f32});
    });
  }

  void optimizer() {
    const KernelSetting s = s_;
    constexpr int64_t kBlock = 65536, kMost = 32 << 20;
    const int64_t n = std::min(kMost, m_.vocab_size * m_.width);
    add("adamw", shape_text({n}), [=](Operands& o) {
      return make_case(s, o, s.device.ops().adamw,
                       AdamW{.p = o.floats(n),
                             .m = o.floats(n),
                             .v = static_cast<float*>(o.bytes(n * 4)),
                             .g = o.floats(n),
                             .n = n,
                             .lr = 1e-4f,
                             .beta1 = 0.9f,
                             .beta2 = 0.95f,
                             .eps = 1e-8f,
                             .weight_decay = 0.1f,
                             .grad_scale = 1,
                             .step = 10});
    });
    add("sum_squares", shape_text({n}), [=](Operands& o) {
      return make_case(s, o, s.device.ops().sum_squares,
                       SumSquares{static_cast<double*>(o.bytes((n / kBlock + 1) * 8)), o.floats(n), n, kBlock});
    });
  }

  KernelShapes k_;
  const ModelSpec& m_;
  KernelSetting s_;
  std::vector<KernelCaseMaker> makers_;
};

}  // namespace

std::vector<KernelCaseMaker> kernel_cases(const KernelShapes& shapes, const KernelSetting& setting) {
  return Cases(shapes, setting).all();
}

}  // namespace rw
