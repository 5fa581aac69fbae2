// Small cases of single kernels for mutants.sh: each runs in the four orders of threads, on device memory that has no
// byte to spare (AddressSanitizer sees one too far), and says what was wrong. Independent of the tests, so that a
// mutant takes seconds.
//   cuda_mutant_cases CASE...
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/cuda/table.h"
#include "kernels/simt/runtime.cuh"

// After the above: the toolkit's names.
#include "kernels/cuda/error.h"
#include "kernels/simt/cublaslt.cuh"

namespace {

using namespace rw;

constexpr int64_t kPrime = 1009;

// Device memory of one run.
class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device() {
    for (void* block : blocks_) cudaFree(block);
  }
  // Poisoned.
  float* space(int64_t n) { return static_cast<float*>(bytes(n * int64_t{sizeof(float)})); }
  float* values(int64_t n) {
    float* const at = space(n);
    for (int64_t i = 0; i < n; ++i) at[i] = value(i + 131 * static_cast<int64_t>(blocks_.size()));
    return at;
  }
  void* halves(int64_t n) {
    auto* const at = static_cast<__nv_bfloat16*>(bytes(n * int64_t{sizeof(__nv_bfloat16)}));
    for (int64_t i = 0; i < n; ++i) at[i] = __float2bfloat16_rn(value(i + 131 * static_cast<int64_t>(blocks_.size())));
    return at;
  }
  void* half_space(int64_t n) { return bytes(n * int64_t{sizeof(__nv_bfloat16)}); }
  const int32_t* numbers(const std::vector<int32_t>& all) {
    void* const at = bytes(static_cast<int64_t>(all.size() * sizeof(int32_t)));
    std::memcpy(at, all.data(), all.size() * sizeof(int32_t));
    return static_cast<const int32_t*>(at);
  }
  void* bytes(int64_t n) {
    void* at = nullptr;
    RW_CUDA(cudaMalloc(&at, static_cast<size_t>(n)));
    blocks_.push_back(at);
    return at;
  }

 private:
  static float value(int64_t i) { return static_cast<float>((i * 7919 + 13) % 1021 - 510) / 512; }
  std::vector<void*> blocks_;
};

// What a run left: bits to compare, numbers to look at.
class Results {
 public:
  void add(const float* x, int64_t n) {
    for (int64_t i = 0; i < n; ++i) all_.push_back(x[i]);
  }
  void add_halves(const void* x, int64_t n) {
    for (int64_t i = 0; i < n; ++i) all_.push_back(__bfloat162float(static_cast<const __nv_bfloat16*>(x)[i]));
  }
  const std::vector<float>& all() const { return all_; }

 private:
  std::vector<float> all_;
};
void wait() { RW_CUDA(cudaStreamSynchronize(nullptr)); }

void norm(Device& d, Results& out) {
  const int64_t rows = 5, c = 331, n = rows * c;
  float *y = d.space(n), *mean = d.space(rows), *rstd = d.space(rows), *d_x = d.space(n), *d_w = d.space(c);
  const float *x = d.values(n), *w = d.values(c), *b = d.values(c), *d_y = d.values(n);
  cuda::norm_fwd({.y = y,
                  .mean = mean,
                  .rstd = rstd,
                  .x = x,
                  .w = w,
                  .b = b,
                  .rows = rows,
                  .c = c,
                  .eps = 1e-5F,
                  .kind = NormKind::layer,
                  .t = DType::f32},
                 {});
  cuda::norm_bwd({.d_x = d_x,
                  .d_w = d_w,
                  .d_y = d_y,
                  .x = x,
                  .mean = mean,
                  .rstd = rstd,
                  .w = w,
                  .rows = rows,
                  .c = c,
                  .kind = NormKind::layer,
                  .t = DType::f32,
                  .write = Write::overwrite},
                 {});
  wait();
  out.add(y, n), out.add(rstd, rows), out.add(d_x, n), out.add(d_w, c);
}

void bias(Device& d, Results& out) {
  const int64_t rows = 37, n = 67;
  float* const d_bias = d.space(n);
  cuda::bias_bwd(
      {.d_bias = d_bias, .d_y = d.values(rows * n), .rows = rows, .n = n, .t = DType::f32, .write = Write::overwrite},
      {});
  wait();
  out.add(d_bias, n);
}

void gemm_pack(Device& d, Results& out) {
  const int64_t n = 37, k = 67;
  float* const packed = d.space(n * k);
  cuda::gemm_pack({.packed = packed,
                   .b = d.values(n * k),
                   .n = n,
                   .k = k,
                   .b_trans = Trans::yes,
                   .src_t = DType::f32,
                   .t = DType::f32},
                  {});
  wait();
  out.add(packed, n * k);
}

void cross_entropy(Device& d, Results& out) {
  const int64_t rows = 3;
  float *part = d.space(rows * 3), *loss = d.space(rows), *logits = d.values(rows * kPrime);
  const int32_t* const target = d.numbers({0, 1008, 500});
  cuda::cross_entropy_part(
      {.part = part, .logits = logits, .target = target, .rows = rows, .v = kPrime, .t = DType::f32}, {});
  cuda::cross_entropy_finish({.loss = loss,
                              .logits = logits,
                              .parts = part,
                              .n_parts = 1,
                              .target = target,
                              .rows = rows,
                              .v = kPrime,
                              .d_scale = 1,
                              .t = DType::f32},
                             {});
  wait();
  out.add(part, rows * 3), out.add(loss, rows), out.add(logits, rows * kPrime);
}

void gelu(Device& d, Results& out) {
  float* const y = d.space(kPrime);
  cuda::gelu_fwd({.y = y, .x = d.values(kPrime), .n = kPrime, .t = DType::f32}, {});
  wait();
  out.add(y, kPrime);
}

// A product with GELU and one with its slope, of a width that the library takes and of one that it does not: near the
// ops apart, whose product is the same.
void gelu_product(Device& d, Results& out) {
  const int64_t m = 7, k = 48;
  for (const int64_t columns : {40, 37}) {
    const int64_t n = m * columns;
    float *c = d.space(n), *act = d.space(n), *slope = d.space(n);
    float *apart = d.space(n), *act_apart = d.space(n), *slope_apart = d.space(n);
    const float *x = d.values(n), *bias = d.values(columns);
    const Gemm plain{.c = apart,
                     .a = d.values(m * k),
                     .b = d.values(columns * k),
                     .m = m,
                     .n = columns,
                     .k = k,
                     .b_trans = Trans::yes,
                     .t = DType::f32,
                     .ct = DType::f32};
    Gemm forward = plain, backward = plain, biased = plain;
    forward.c = c, forward.bias = bias, forward.gelu = act;
    backward.c = slope, backward.gelu_slope_of = x;
    biased.bias = bias;
    cuda::gemm(forward, {}), cuda::gemm(backward, {});
    cuda::gemm(plain, {});
    cuda::gelu_bwd({.d_x = slope_apart, .d_y = apart, .x = x, .n = n, .t = DType::f32}, {});
    cuda::gemm(biased, {});
    cuda::gelu_fwd({.y = act_apart, .x = apart, .n = n, .t = DType::f32}, {});
    wait();
    const auto near = [](float a, float b) { return std::fabs(a - b) <= 1e-5F * (1 + std::fabs(b)); };
    for (int64_t i = 0; i < n; ++i)
      if (c[i] != apart[i] || !near(act[i], act_apart[i]) || !near(slope[i], slope_apart[i]))
        throw std::runtime_error("GELU of a product is not that of the ops apart");
    out.add(c, n), out.add(act, n), out.add(slope, n);
  }
  // Types that the library has no GELU for.
  const int64_t n = m * 40;
  float *c = d.space(n), *act = d.space(n);
  cuda::gemm({.c = c,
              .a = d.halves(m * k),
              .b = d.halves(40 * k),
              .gelu = act,
              .m = m,
              .n = 40,
              .k = k,
              .b_trans = Trans::yes,
              .t = DType::bf16,
              .ct = DType::f32},
             {});
  wait();
  out.add(c, n), out.add(act, n);
}

// A bias one number past its alignment; rows that are the same bits, whatever their number, when that is asked for.
void library_product(Device& d, Results& out) {
  const int64_t m = 7, n = 24, k = 331;
  simt::set_cublaslt_ways({.adds_by_shape = true});
  float *const all = d.space(m * n), *const a = d.values(m * k);
  for (int64_t i = 0; i < m * k; ++i) a[i] /= 3;  // no sum of them is exact
  Gemm g{.c = all,
         .a = a,
         .b_packed = d.values(n * k),
         .bias = d.values(n + 1) + 1,
         .m = m,
         .n = n,
         .k = k,
         .t = DType::f32,
         .ct = DType::f32,
         .fixed_order = true};
  g.workspace = d.bytes(cuda::gemm_workspace(g, {}));
  cuda::gemm(g, {});
  std::vector<float*> parts;
  for (const int64_t rows : {1, 2, 3}) {
    g.c = parts.emplace_back(d.space(rows * n)), g.m = rows;
    cuda::gemm(g, {});
  }
  wait();
  simt::set_cublaslt_ways({});
  for (size_t i = 0; i < parts.size(); ++i)
    if (std::memcmp(parts[i], all, (i + 1) * static_cast<size_t>(n) * sizeof(float)) != 0)
      throw std::runtime_error("a row depends on how many there are");
  out.add(all, m * n);
}

// Rows whose shared memory is 48 KiB.
void wide_norm(Device& d, Results& out) {
  const int64_t c = 12288;
  float *y = d.space(c), *rstd = d.space(1);
  cuda::norm_fwd({.y = y,
                  .rstd = rstd,
                  .x = d.values(c),
                  .w = d.values(c),
                  .rows = 1,
                  .c = c,
                  .eps = 1e-5F,
                  .kind = NormKind::rms,
                  .t = DType::f32},
                 {});
  wait();
  out.add(y, c), out.add(rstd, 1);
}

void rope(Device& d, Results& out) {
  float* const x = d.values(7 * 3 * 10);
  cuda::rope({.x = x,
              .pos = d.numbers({0, 1, 2, 3, 4, 5, 6}),
              .cos = d.values(7 * 5),
              .sin = d.values(7 * 5),
              .rows = 7,
              .heads = 3,
              .d = 10,
              .t = DType::f32},
             {});
  wait();
  out.add(x, 7 * 3 * 10);
}

void add(Device& d, Results& out) {
  float *sum = d.space(kPrime), *copy = d.space(kPrime);
  cuda::add({.y = sum, .a = d.values(kPrime), .b = d.values(kPrime), .n = kPrime, .t = DType::f32}, {});
  cuda::cast({.y = copy, .x = sum, .n = kPrime, .yt = DType::f32, .xt = DType::f32}, {});
  wait();
  out.add(sum, kPrime), out.add(copy, kPrime);
}

// Looks at what came back without another wait: read is the wait.
void read(Device& d, Results& out) {
  float* const sum = d.space(kPrime);
  std::vector<float> host(kPrime, NAN);
  cuda::add({.y = sum, .a = d.values(kPrime), .b = d.values(kPrime), .n = kPrime, .t = DType::f32}, {});
  cuda::read({.host = host.data(), .device = sum, .n = kPrime, .t = DType::f32}, {});
  out.add(host.data(), kPrime);
  wait();
}

// m begins as zeros: where it stays so, nobody was.
void adamw(Device& d, Results& out) {
  float *p = d.values(kPrime), *m = d.space(kPrime), *v = d.space(kPrime);
  cuda::zero({.y = m, .bytes = kPrime * int64_t{sizeof(float)}}, {});
  cuda::zero({.y = v, .bytes = kPrime * int64_t{sizeof(float)}}, {});
  cuda::adamw({.p = p,
               .m = m,
               .v = v,
               .g = d.values(kPrime),
               .n = kPrime,
               .lr = 0.1F,
               .beta1 = 0.9F,
               .beta2 = 0.95F,
               .eps = 1e-8F,
               .weight_decay = 0.1F,
               .grad_scale = 1,
               .step = 1},
              {});
  wait();
  int64_t untouched = 0;
  for (int64_t i = 0; i < kPrime; ++i) untouched += m[i] == 0 ? 1 : 0;
  if (untouched > 1) throw std::runtime_error(std::to_string(untouched) + " elements were not updated");  // one g is 0
  out.add(p, kPrime), out.add(m, kPrime), out.add(v, kPrime);
}

void embedding(Device& d, Results& out) {
  const int64_t rows = 7, c = 37;
  float* const x = d.space(rows * c);
  cuda::embedding_fwd({.x = x,
                       .table = d.values(13 * c),
                       .id = d.numbers({5, 12, 5, 0, 7, 5, 12}),
                       .rows = rows,
                       .c = c,
                       .t = DType::f32},
                      {});
  wait();
  out.add(x, rows * c);
}

// Of `sequences` of `length` rows in bf16, heads of 64, forward and backward.
void attention_of(int32_t sequences, int32_t length, int64_t heads, Device& d, Results& out) {
  const int64_t width = 64, rows = int64_t{length} * sequences, n = rows * heads * width;
  std::vector<int32_t> cu;
  for (int32_t i = 0; i <= sequences; ++i) cu.push_back(length * i);
  void *o = d.half_space(n), *d_q = d.half_space(n), *d_k = d.half_space(n), *d_v = d.half_space(n);
  AttentionBwd b{.d_q = d_q,
                 .d_k = d_k,
                 .d_v = d_v,
                 .d_o = d.halves(n),
                 .q = d.halves(n),
                 .k = d.halves(n),
                 .v = d.halves(n),
                 .o = o,
                 .lse = d.space(rows * heads),
                 .cu_seqlens = d.numbers(cu),
                 .n_seq = sequences,
                 .heads = heads,
                 .kv_heads = heads,
                 .d = width,
                 .scale = 0.125F,
                 .t = DType::bf16};
  b.workspace = d.bytes(std::max<int64_t>(1, cuda::attention_workspace(b, {})));
  cuda::attention_fwd({.o = o,
                       .lse = const_cast<float*>(b.lse),
                       .q = b.q,
                       .k = b.k,
                       .v = b.v,
                       .cu_seqlens = b.cu_seqlens,
                       .n_seq = sequences,
                       .heads = heads,
                       .kv_heads = heads,
                       .d = width,
                       .scale = b.scale,
                       .t = b.t,
                       .workspace = b.workspace},
                      {});
  cuda::attention_bwd(b, {});
  wait();
  for (const void* x : {static_cast<const void*>(o), static_cast<const void*>(d_q), static_cast<const void*>(d_k),
                        static_cast<const void*>(d_v)})
    out.add_halves(x, n);
}

// Many short sequences, so that each block has several tiles.
void attention(Device& d, Results& out) {
  simt::set_capability(80);
  attention_of(23, 21, 2, d, out);
  simt::set_capability(90);
}
// Tiles of keys enough that each is overwritten, and the block that has the first goes on to another.
void attention_90(Device& d, Results& out) { attention_of(3, 413, 1, d, out); }

void products_90(Device&, Results&) {
  if (!cuda::has_warpgroup_products()) throw std::runtime_error("the device's products are found wrong");
}

struct Case {
  const char* name;
  void (*run)(Device&, Results&);
};
constexpr Case kCases[] = {{"norm", norm},
                           {"bias", bias},
                           {"gemm_pack", gemm_pack},
                           {"cross_entropy", cross_entropy},
                           {"gelu", gelu},
                           {"gelu_product", gelu_product},
                           {"library_product", library_product},
                           {"wide_norm", wide_norm},
                           {"rope", rope},
                           {"add", add},
                           {"read", read},
                           {"adamw", adamw},
                           {"embedding", embedding},
                           {"attention", attention},
                           {"attention_90", attention_90},
                           {"products_90", products_90}};

// What was wrong; "" nothing.
std::string look(const Case& c) {
  std::vector<float> first;
  for (const simt::Order order : simt::kOrders) {
    simt::set_order(order);
    Results found;
    try {
      Device device;
      c.run(device, found);
    } catch (const std::exception& e) {
      return e.what();
    }
    for (float x : found.all())
      if (std::isnan(x)) return "a result is NaN: not written, or made of what was not there yet";
    if (first.empty()) first = found.all();
    if (std::memcmp(first.data(), found.all().data(), first.size() * sizeof(float)) != 0) return "the orders differ";
  }
  return "";
}

}  // namespace

int main(int argc, char** argv) {
  bool right = true;
  for (int i = 1; i < argc; ++i) {
    const Case* found = nullptr;
    for (const Case& c : kCases)
      if (std::strcmp(c.name, argv[i]) == 0) found = &c;
    if (found == nullptr) {
      std::fprintf(stderr, "cuda_mutant_cases: no case %s\n", argv[i]);
      return 2;
    }
    const std::string wrong = look(*found);
    std::printf("%s: %s\n", argv[i], wrong.empty() ? "right" : wrong.c_str());
    right = right && wrong.empty();
  }
  return right ? 0 : 1;
}
