// Every attention that this CPU can run, and buffers that notice writes outside the rows they lend.
#pragma once
#include <cstring>
#include <vector>

#include "tests/kernels/attention_reference.h"
#if defined(RW_TEST_CUDA)
#include "tests/cuda/cuda_attention.h"
#else
#include "kernels/cpu/attention_bf16.h"
#include "kernels/cpu/gemm_amx.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/variant.h"
#endif

namespace rw::test {

constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f16};

struct Backend {
  const char* name;
  bool has_f32;
  void (*fwd)(const AttentionFwd&, Stream);
  void (*bwd)(const AttentionBwd&, Stream);
  int64_t (*workspace)(const AttentionBwd&, Stream);
  void (*paged)(const PagedAttention&, Stream);
  int64_t (*paged_workspace)(const PagedAttention&, Stream);
  void (*kv_write)(const KvWrite&, Stream);
};

#if defined(RW_TEST_CUDA)
// The table's, on the rows as they are and on rows that tensor cores take.
inline std::vector<Backend> backends(DType t) {
  const Ops& ops = waited_cuda_ops();
  std::vector<Backend> all{{"cuda", true, fwd_in_each_order<Place::as_is>, bwd_in_each_order<Place::as_is>,
                            ops.attention_workspace, paged_in_each_order, ops.paged_attention_workspace,
                            kv_write_in_each_order}};
  if (t != DType::f32)
    all.push_back({"cuda, aligned rows", false, fwd_in_each_order<Place::aligned>, bwd_in_each_order<Place::aligned>,
                   ops.attention_workspace, paged_in_each_order, ops.paged_attention_workspace,
                   kv_write_in_each_order});
  return all;
}
// With the kernels of devices before compute capability 9.0, where those differ.
inline std::vector<Backend> attention_backends(DType t) {
  std::vector<Backend> all = backends(t);
  if (t == DType::f32 || !has_older_devices()) return all;
  Backend older = all.back();
  older.name = "cuda, aligned rows, 8.0";
  older.fwd = [](const AttentionFwd& a, Stream s) {
    on_older_device([&] { fwd_in_each_order<Place::aligned>(a, s); });
  };
  older.bwd = [](const AttentionBwd& a, Stream s) {
    on_older_device([&] { bwd_in_each_order<Place::aligned>(a, s); });
  };
  all.push_back(older);
  return all;
}
#else
#define RW_BACKEND(ns, f32, fwd, bwd, paged)                                                                \
  Backend {                                                                                                 \
#ns " " #fwd, f32, ns::fwd, ns::bwd, ns::attention_workspace, ns::paged, ns::paged_attention_workspace, \
        ns::kv_write                                                                                        \
  }
inline std::vector<Backend> backends(DType t) {
  std::vector<Backend> all{RW_BACKEND(cpu_scalar, true, attention_fwd, attention_bwd, paged_attention)};
  if (isa_supported(Isa::avx2))
    all.push_back(RW_BACKEND(cpu_avx2, true, attention_fwd, attention_bwd, paged_attention));
  if (isa_supported(Isa::avx512))
    all.push_back(RW_BACKEND(cpu_avx512, true, attention_fwd, attention_bwd, paged_attention));
  if (isa_supported(Isa::avx512_bf16)) {
    all.push_back(RW_BACKEND(cpu_avx512_bf16, true, attention_fwd, attention_bwd, paged_attention));
    if (t == DType::bf16 && amx_ready())  // else the row above ran it
      all.push_back(RW_BACKEND(cpu_avx512_bf16, false, attention_fwd_dot, attention_bwd_dot, paged_attention_dot));
  }
  return all;
}
#undef RW_BACKEND
inline std::vector<Backend> attention_backends(DType t) { return backends(t); }
#endif

// `rows` rows of a wider buffer: each row has `width` elements of ours at `column` of `stride`. What is not ours holds
// a canary. The buffer starts one element past an aligned address.
class Rows {
 public:
  Rows(DType t, int64_t rows, int64_t stride) : t_(t), rows_(rows), stride_(stride) {
    bytes_.assign(static_cast<size_t>((rows * stride + 2 * kMargin) * dtype_bytes(t)), kCanary);
  }
  int64_t stride() const { return stride_; }
  void* data(int64_t column = 0) { return bytes_.data() + (kMargin + column) * dtype_bytes(t_); }

  void put(int64_t column, int64_t width, const std::vector<double>& values) {
    for (int64_t i = 0; i < rows_ * width; ++i) {
      const auto x = static_cast<float>(values[static_cast<size_t>(i)]);
      const uint16_t h = t_ == DType::bf16 ? to_bf16(x).bits : to_f16(x).bits;
      std::memcpy(at(column, width, i), t_ == DType::f32 ? static_cast<const void*>(&x) : &h,
                  static_cast<size_t>(dtype_bytes(t_)));
    }
  }
  std::vector<double> get(int64_t column, int64_t width) {
    std::vector<double> values(static_cast<size_t>(rows_ * width));
    for (int64_t i = 0; i < rows_ * width; ++i) {
      float x = 0;
      uint16_t h = 0;
      if (t_ == DType::i8) {
        values[static_cast<size_t>(i)] = static_cast<double>(static_cast<int8_t>(*at(column, width, i)));
        continue;
      }
      std::memcpy(t_ == DType::f32 ? static_cast<void*>(&x) : &h, at(column, width, i),
                  static_cast<size_t>(dtype_bytes(t_)));
      values[static_cast<size_t>(i)] = static_cast<double>(t_ == DType::f32    ? x
                                                           : t_ == DType::bf16 ? to_f32(bf16{h})
                                                                               : to_f32(f16{h}));
    }
    return values;
  }
  // Whether everything outside columns [column, column + width) still holds the canary.
  bool intact_outside(int64_t column, int64_t width) {
    std::vector<uint8_t> copy = bytes_;
    for (int64_t r = 0; r < rows_; ++r)
      std::memset(copy.data() + (at(column, width, r * width) - bytes_.data()), kCanary,
                  static_cast<size_t>(width * dtype_bytes(t_)));
    for (uint8_t b : copy) {
      if (b != kCanary) return false;
    }
    return true;
  }
  const std::vector<uint8_t>& bytes() const { return bytes_; }

 private:
  static constexpr int64_t kMargin = 67;
  static constexpr uint8_t kCanary = 0xff;  // NaN in every type
  uint8_t* at(int64_t column, int64_t width, int64_t i) {
    return bytes_.data() + (kMargin + i / width * stride_ + column + i % width) * dtype_bytes(t_);
  }
  DType t_;
  int64_t rows_, stride_;
  std::vector<uint8_t> bytes_;
};

// All that a forward and a backward of one shape read and write: q, k, v in one fused buffer, as the model has them.
struct Run {
  Shape shape;
  DType t;
  float scale;
  std::vector<int32_t> cu;
  Rows qkv, o, d_o, d_qkv;
  std::vector<float> lse;
  std::vector<uint8_t> workspace;

  Run(const Shape& s, DType type, const Inputs& in, double scale_by = 1)
      : shape(s),
        t(type),
        scale(static_cast<float>(s.scale() * scale_by)),
        cu(s.cu_seqlens()),
        qkv(type, s.tokens(), (s.heads + 2 * s.kv_heads) * s.d + 5),
        o(type, s.tokens(), s.heads * s.d + 3),
        d_o(type, s.tokens(), s.heads * s.d + 3),
        d_qkv(type, s.tokens(), (s.heads + 2 * s.kv_heads) * s.d + 5),
        lse(static_cast<size_t>(s.tokens() * s.heads) + 8, kCanary) {
    qkv.put(0, q_width(), in.q);
    qkv.put(k_column(), kv_width(), in.k);
    qkv.put(v_column(), kv_width(), in.v);
    d_o.put(0, q_width(), in.d_o);
  }
  static constexpr float kCanary = -12345.0f;
  int64_t q_width() const { return shape.heads * shape.d; }
  int64_t kv_width() const { return shape.kv_heads * shape.d; }
  int64_t k_column() const { return q_width(); }
  int64_t v_column() const { return q_width() + kv_width(); }
  int64_t all_width() const { return q_width() + 2 * kv_width(); }

  AttentionBwd bwd_args() {
    return {.d_q = d_qkv.data(),
            .d_k = d_qkv.data(k_column()),
            .d_v = d_qkv.data(v_column()),
            .d_o = d_o.data(),
            .q = qkv.data(),
            .k = qkv.data(k_column()),
            .v = qkv.data(v_column()),
            .o = o.data(),
            .lse = lse.data(),
            .ldo = o.stride(),
            .ldq = qkv.stride(),
            .ldkv = qkv.stride(),
            .cu_seqlens = cu.data(),
            .n_seq = static_cast<int64_t>(shape.lengths.size()),
            .heads = shape.heads,
            .kv_heads = shape.kv_heads,
            .d = shape.d,
            .scale = scale,
            .t = t};
  }
  void prepare(const Backend& b, int threads) {
    workspace.assign(static_cast<size_t>(b.workspace(bwd_args(), Stream{threads})) + kMargin, 0xff);
  }
  // Whether what lies behind the workspace was left alone.
  bool workspace_intact() const {
    for (size_t i = workspace.size() - kMargin; i < workspace.size(); ++i) {
      if (workspace[i] != 0xff) return false;
    }
    return true;
  }
  void forward(const Backend& b, int threads) {
    prepare(b, threads);
    const AttentionBwd a = bwd_args();
    b.fwd({.o = o.data(),
           .lse = lse.data(),
           .q = a.q,
           .k = a.k,
           .v = a.v,
           .ldo = a.ldo,
           .ldq = a.ldq,
           .ldkv = a.ldkv,
           .cu_seqlens = a.cu_seqlens,
           .n_seq = a.n_seq,
           .heads = a.heads,
           .kv_heads = a.kv_heads,
           .d = a.d,
           .scale = a.scale,
           .t = t,
           .workspace = workspace.data()},
          Stream{threads});
  }
  void backward(const Backend& b, int threads) {
    prepare(b, threads);
    AttentionBwd a = bwd_args();
    a.workspace = workspace.data();
    b.bwd(a, Stream{threads});
  }

 private:
  static constexpr size_t kMargin = 256;
};

// The largest |found - expected| / bound, and where.
struct Worst {
  double ratio = 0;
  size_t index = 0;
};
inline Worst worst(const Bounded& expected, const std::vector<double>& found) {
  Worst w;
  for (size_t i = 0; i < found.size(); ++i) {
    const double ratio = std::fabs(found[i] - expected.value[i]) / expected.bound[i];
    if (!(ratio <= w.ratio)) w = {ratio, i};
  }
  return w;
}

}  // namespace rw::test
