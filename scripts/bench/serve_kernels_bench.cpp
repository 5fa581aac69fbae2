// What serving asks of the kernels, beside what the machine can do: products with packed weights in each format, and
// attention over pages. JSON lines on stdout: first {"threads", "isa", "clock", "read_gb_per_s", "peak": {type:
// GFLOP/s}}, then a line per case with its best time, GFLOP/s, GB/s of what cost() says is read, and the latter as a
// share of a plain read measured next to it.
//
// Weights and pages are rotated over 256 MiB and more, so that they come from memory; a time is that of a pass over all
// of them, divided. --cpu counts the thread's CPU time instead of the wall's: for one thread on a busy machine.
// usage: serve_kernels_bench [--threads N] [--isa NAME] [--cpu] [--only NAME] [--rows M] [--type NAME] [--shape NxK]
#include <omp.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/ops.h"

namespace rw::bench {
namespace {

struct Options {
  int threads = omp_get_max_threads();
  const char* isa = nullptr;
  bool cpu = false;
  std::string only, type, shape;
  int64_t rows = 0;
};

class Buffer {  // zeroed, touched, on huge pages if the kernel has them
 public:
  explicit Buffer(int64_t bytes) : bytes_((static_cast<size_t>(bytes) + kPage) / kPage * kPage) {
    data_ = static_cast<char*>(std::aligned_alloc(kPage, bytes_));
    if (!data_) throw std::bad_alloc();
    madvise(data_, bytes_, MADV_HUGEPAGE);
    std::memset(data_, 0, bytes_);
  }
  ~Buffer() { std::free(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  char* data(int64_t offset = 0) { return data_ + offset; }

 private:
  static constexpr size_t kPage = size_t{2} << 20;
  size_t bytes_;
  char* data_;
};

constexpr int64_t kFromMemory = int64_t{256} << 20;

class Bench {
 public:
  explicit Bench(const Options& o) : o_(o), ops_(cpu_ops(o.isa)), stream_{o.threads}, plain_(kFromMemory) {}

  void head() {
    std::printf("{\"threads\": %d, \"isa\": \"%s\", \"clock\": \"%s\", \"read_gb_per_s\": %.1f, \"peak\": {",
                o_.threads, ops_.name, o_.cpu ? "cpu" : "wall", read_gb_per_s());
    const char* between = "";
    for (DType t : {DType::f32, DType::bf16}) {
      const char* instruction = "";
      const double peak = measure_peak_flops(t, stream_, 0.2, &instruction);
      std::printf("%s\"%s\": %.0f", between, dtype_name(t), 1e-9 * peak);
      between = ", ";
    }
    std::printf("}}\n");
  }

  // One pass of `calls` calls of f(i); the line of one call.
  void line(const std::string& what, const Cost& cost, int64_t calls, const std::function<void(int64_t)>& f) {
    const auto pass = [&] {
      for (int64_t i = 0; i < calls; ++i) f(i);
    };
    const double s = best_of(pass) / static_cast<double>(calls), gb = 1e-9 * cost.bytes_read / s;
    const double read = read_gb_per_s();
    std::printf("{%s, \"ms\": %.4f, \"gflops\": %.1f, \"gb_per_s\": %.2f, \"of_read\": %.3f}\n", what.c_str(), 1e3 * s,
                1e-9 * cost.flops / s, gb, gb / read);
    std::fflush(stdout);
  }
  bool wanted(const std::string& name, const std::string& type, int64_t rows, const std::string& shape) const {
    return (o_.only.empty() || o_.only == name) && (o_.type.empty() || o_.type == type) &&
           (o_.rows == 0 || o_.rows == rows) && (o_.shape.empty() || o_.shape == shape);
  }
  const Ops& ops() const { return ops_; }
  Stream stream() const { return stream_; }

 private:
  double now_s() const {
    if (!o_.cpu) return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
    timespec t{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  }
  double best_of(const std::function<void()>& f) {
    f();
    double best = 1e9, all = 0;
    for (int i = 0; i < 5 || (i < 50 && all < 0.1); ++i) {
      const double start = now_s();
      f();
      const double s = now_s() - start;
      best = std::min(best, s);
      all += s;
    }
    return best;
  }
  double read_gb_per_s() {
    const uint64_t* p = reinterpret_cast<const uint64_t*>(plain_.data());
    uint64_t sum = 0;
    const double s = best_of([&] {
#pragma omp parallel for simd num_threads(o_.threads) reduction(+ : sum) schedule(static)
      for (int64_t w = 0; w < kFromMemory / 8; ++w) sum += p[w];
    });
    if (sum) std::abort();
    return 1e-9 * static_cast<double>(kFromMemory) / s;
  }

  Options o_;
  const Ops& ops_;
  Stream stream_;
  Buffer plain_;
};

std::string number(const char* name, int64_t x) { return std::string("\"") + name + "\": " + std::to_string(x); }
std::string text(const char* name, const std::string& x) { return std::string("\"") + name + "\": \"" + x + "\""; }

// ---- products -------------------------------------------------------------------------------------------------------

struct Product {
  std::string type;  // f32, bf16, int8, int4: the last two with rows of bf16
  int64_t n, k;
  bool quantised() const { return type.starts_with("int"); }
  DType t() const { return type == "f32" ? DType::f32 : DType::bf16; }
  QuantBits bits() const { return type == "int8" ? QuantBits::int8 : QuantBits::int4; }
};

void products(Bench& bench, const Product& p) {
  const std::string shape = std::to_string(p.n) + "x" + std::to_string(p.k);
  const Ops& ops = bench.ops();
  const Stream stream = bench.stream();
  constexpr int64_t kRows[] = {1, 2, 4, 8, 16, 32, 512};
  if (std::none_of(std::begin(kRows), std::end(kRows),
                   [&](int64_t m) { return bench.wanted("product", p.type, m, shape); }))
    return;
  const int64_t group = default_quant_group(p.bits());
  Buffer w(p.n * p.k * 4);
  float* x = reinterpret_cast<float*>(w.data());
  for (int64_t i = 0; i < p.n * p.k; ++i) x[i] = static_cast<float>((i * 7919) % 255 - 127) * 1e-3f;
  QuantPack quant{.packed = nullptr, .b = x, .n = p.n, .k = p.k, .bits = p.bits(), .group = group};
  GemmPack plain{.packed = nullptr, .b = x, .n = p.n, .k = p.k, .b_trans = Trans::yes, .src_t = DType::f32, .t = p.t()};
  const int64_t bytes = p.quantised() ? ops.quant_packed_bytes(quant, stream) : ops.packed_bytes(plain, stream);
  const int64_t each = (bytes + 4095) / 4096 * 4096, copies = kFromMemory / each + 1;
  Buffer packed(copies * each);
  quant.packed = plain.packed = packed.data();
  if (p.quantised()) ops.quant_pack(quant, stream);
  else ops.gemm_pack(plain, stream);
  for (int64_t i = 1; i < copies; ++i) std::memcpy(packed.data(i * each), packed.data(), static_cast<size_t>(bytes));
  const int64_t most = 512;
  Buffer a(most * p.k * 4), c(most * p.n * 4);
  for (int64_t i = 0; i < most * p.k; ++i) x[i % (p.n * p.k)] = static_cast<float>((i * 31) % 200 - 100) * 0.01f;
  ops.cast({.y = a.data(), .x = x, .n = std::min(most * p.k, p.n * p.k), .yt = p.t(), .xt = DType::f32}, stream);
  for (int64_t m : kRows) {
    if (!bench.wanted("product", p.type, m, shape)) continue;
    QuantGemm q{.c = c.data(), .a = a.data(), .b_packed = nullptr, .m = m, .n = p.n, .k = p.k, .bits = p.bits()};
    q.group = group, q.t = q.ct = p.t();
    Gemm g{.c = c.data(), .a = a.data(), .m = m, .n = p.n, .k = p.k, .t = p.t(), .ct = p.t()};
    g.b_packed = packed.data();
    Buffer workspace(p.quantised() ? ops.quant_gemm_workspace(q, stream) : ops.gemm_workspace(g, stream));
    q.workspace = g.workspace = workspace.data();
    const Cost price = p.quantised() ? cost(q) : cost(g);
    bench.line(text("op", "product") + ", " + text("type", p.type) + ", " + number("m", m) + ", " + number("n", p.n) +
                   ", " + number("k", p.k),
               price, m > 32 ? 1 : copies, [&](int64_t i) {
                 q.b_packed = g.b_packed = packed.data(i * each);
                 if (p.quantised()) ops.quant_gemm(q, stream);
                 else ops.gemm(g, stream);
               });
  }
}

// ---- attention over pages -------------------------------------------------------------------------------------------

struct Paged {
  const char* name;
  int64_t sequences, queries, context;  // queries and context (with them) of each
  int64_t heads, kv_heads, d;
  DType t, kv_t;
  bool fixed_order;
};

void paged(Bench& bench, const Paged& p) {
  const std::string type = std::string(dtype_name(p.t)) + "/" + dtype_name(p.kv_t);
  if (!bench.wanted(p.name, type, p.queries, "")) return;
  constexpr int64_t kPage = 16;
  const int64_t pages = (p.context + kPage - 1) / kPage, width = p.kv_heads * p.d;
  const int64_t layer = p.sequences * pages * kPage * width * dtype_bytes(p.kv_t);
  const int64_t layers = p.queries > 1 ? 1 : kFromMemory / (2 * layer) + 1;  // a prefill is not bound by reading
  const int64_t slots = layers * p.sequences * pages * kPage;
  Buffer k(layers * layer), v(layers * layer), k_scales(slots * p.kv_heads * 4), v_scales(slots * p.kv_heads * 4);
  const int64_t rows = p.sequences * p.queries, q_bytes = rows * p.heads * p.d * dtype_bytes(p.t);
  Buffer q(q_bytes), o(q_bytes);
  std::vector<int32_t> table, start, context;
  const int64_t per_layer = p.sequences * pages;
  for (int64_t l = 0; l < layers; ++l) {
    for (int64_t i = 0; i < per_layer; ++i)  // scattered: 7919 is a prime larger than any of these share a factor with
      table.push_back(static_cast<int32_t>(l * per_layer + i * 7919 % per_layer));
  }
  for (int64_t s = 0; s <= p.sequences; ++s) start.push_back(static_cast<int32_t>(s * p.queries));
  for (int64_t s = 0; s < p.sequences; ++s) context.push_back(static_cast<int32_t>(p.context));
  PagedAttention a{.o = o.data(),
                   .q = q.data(),
                   .k_pages = k.data(),
                   .v_pages = v.data(),
                   .page_table = table.data(),
                   .q_start = start.data(),
                   .context_len = context.data(),
                   .n_seq = p.sequences,
                   .max_pages = pages,
                   .page_tokens = kPage,
                   .heads = p.heads,
                   .kv_heads = p.kv_heads,
                   .d = p.d,
                   .scale = 1 / std::sqrt(static_cast<float>(p.d)),
                   .t = p.t,
                   .kv_t = p.kv_t,
                   .k_scales = reinterpret_cast<float*>(k_scales.data()),
                   .v_scales = reinterpret_cast<float*>(v_scales.data()),
                   .fixed_order = p.fixed_order};
  Buffer workspace(bench.ops().paged_attention_workspace(a, bench.stream()) + 1);
  a.workspace = workspace.data();
  bench.line(text("op", p.name) + ", " + text("type", type) + ", " + number("sequences", p.sequences) + ", " +
                 number("queries", p.queries) + ", " + number("context", p.context) + ", " + number("heads", p.heads) +
                 ", " + number("kv_heads", p.kv_heads) + ", " + number("d", p.d) +
                 ", \"fixed_order\": " + (p.fixed_order ? "true" : "false"),
             cost(a), layers, [&](int64_t l) {
               a.page_table = table.data() + l * per_layer;
               bench.ops().paged_attention(a, bench.stream());
             });
}

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const bool more = i + 1 < argc;
    if (flag == "--cpu") o.cpu = true;
    else if (flag == "--threads" && more) o.threads = std::atoi(argv[++i]);
    else if (flag == "--isa" && more) o.isa = argv[++i];
    else if (flag == "--only" && more) o.only = argv[++i];
    else if (flag == "--type" && more) o.type = argv[++i];
    else if (flag == "--shape" && more) o.shape = argv[++i];
    else if (flag == "--rows" && more) o.rows = std::atoll(argv[++i]);
    else {
      std::fprintf(stderr, "%s: unknown, or its value is missing; see the head of serve_kernels_bench.cpp\n", argv[i]);
      std::exit(2);
    }
  }
  return o;
}

int run(const Options& o) {
  Bench bench(o);
  bench.head();
  constexpr int64_t kShapes[][2] = {{768, 768}, {3072, 768}, {2048, 2048}, {5632, 2048}, {2048, 5632}, {32000, 2048}};
  for (const char* type : {"f32", "bf16", "int8", "int4"}) {
    for (const auto& s : kShapes) products(bench, {type, s[0], s[1]});
  }
  constexpr int64_t kModels[][3] = {{12, 12, 64}, {32, 4, 64}, {32, 8, 128}};  // heads, kv heads, d
  for (const auto& [h, kv, d] : kModels) {
    for (const auto& [t, kv_t] :
         {std::pair{DType::f32, DType::f32}, {DType::bf16, DType::bf16}, {DType::bf16, DType::i8}}) {
      constexpr int64_t kContexts[][2] = {{1, 2048}, {1, 8192}, {16, 512}, {32, 1024}};
      for (const auto& [sequences, context] : kContexts)
        paged(bench, {"decode", sequences, 1, context, h, kv, d, t, kv_t, false});
      for (bool fixed : {false, true}) {
        paged(bench, {"prefill", 1, 512, 512, h, kv, d, t, kv_t, fixed});
        paged(bench, {"prefill", 1, 512, 4096, h, kv, d, t, kv_t, fixed});
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace rw::bench

int main(int argc, char** argv) { return rw::bench::run(rw::bench::parse(argc, argv)); }
