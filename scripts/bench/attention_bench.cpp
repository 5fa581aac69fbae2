// Speed of attention on this machine: GFLOP/s of the causal half (2 products forward, 5 backward) and, for decoding,
// GB/s of keys and values read. JSON lines on stdout. Buffers stand on huge pages, as in the arena. Usage:
// attention_bench [threads [isa]]
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <tuple>
#include <vector>

#include "kernels/cpu/bf16.h"
#include "kernels/ops.h"

using namespace rw;

namespace {

struct Case {
  int64_t batch, tokens, heads, kv_heads, d;
};

// Best and median seconds of at least 5 calls and half a second, after one to warm up.
struct Seconds {
  double best, median;
};
Seconds measure(const std::function<void()>& f) {
  f();
  std::vector<double> s;
  double total = 0;
  while (s.size() < 5 || total < 0.5) {
    const auto begin = std::chrono::steady_clock::now();
    f();
    s.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    total += s.back();
  }
  std::sort(s.begin(), s.end());
  return {s.front(), s[s.size() / 2]};
}

// Memory on huge pages where the system gives them.
class Buffer {
 public:
  explicit Buffer(int64_t bytes) : size_(static_cast<size_t>((bytes + kHuge) / kHuge * kHuge)) {
    data_ = std::aligned_alloc(kHuge, size_);
    if (data_ == nullptr) std::abort();
    ::madvise(data_, size_, MADV_HUGEPAGE);
    std::memset(data_, 0, size_);
  }
  ~Buffer() { std::free(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  void* data() { return data_; }

  // Fills the first n elements of type t with values in [-1, 1).
  void fill(int64_t n, DType t, uint32_t seed) {
    for (int64_t i = 0; i < n; ++i) {
      seed = seed * 1664525u + 1013904223u;
      const float x = static_cast<float>(static_cast<int32_t>(seed)) * 0x1p-31f;
      if (t == DType::f32) static_cast<float*>(data_)[i] = x;
      else static_cast<bf16*>(data_)[i] = to_bf16(x);
    }
  }

 private:
  static constexpr size_t kHuge = size_t{2} << 20;
  size_t size_;
  void* data_;
};

void dense(const Ops& ops, const Case& c, DType t, int threads) {
  const int64_t rows = c.batch * c.tokens;
  std::vector<int32_t> cu;
  for (int64_t s = 0; s <= c.batch; ++s) cu.push_back(static_cast<int32_t>(s * c.tokens));
  const int64_t n_q = rows * c.heads * c.d, n_k = rows * c.kv_heads * c.d, wide = n_q * dtype_bytes(t),
                slim = n_k * dtype_bytes(t);
  Buffer q(wide), k(slim), v(slim), o(wide), d_o(wide), d_q(wide), d_k(slim), d_v(slim);
  q.fill(n_q, t, 1);
  k.fill(n_k, t, 2);
  v.fill(n_k, t, 3);
  d_o.fill(n_q, t, 4);
  std::vector<float> lse(static_cast<size_t>(rows * c.heads));
  AttentionBwd b{.d_q = d_q.data(),
                 .d_k = d_k.data(),
                 .d_v = d_v.data(),
                 .d_o = d_o.data(),
                 .q = q.data(),
                 .k = k.data(),
                 .v = v.data(),
                 .o = o.data(),
                 .lse = lse.data(),
                 .cu_seqlens = cu.data(),
                 .n_seq = c.batch,
                 .heads = c.heads,
                 .kv_heads = c.kv_heads,
                 .d = c.d,
                 .scale = 0.125f,
                 .t = t};
  const Stream stream{threads};
  Buffer workspace(ops.attention_workspace(b, stream));
  b.workspace = workspace.data();
  const AttentionFwd f{.o = o.data(),
                       .lse = lse.data(),
                       .q = q.data(),
                       .k = k.data(),
                       .v = v.data(),
                       .cu_seqlens = cu.data(),
                       .n_seq = c.batch,
                       .heads = c.heads,
                       .kv_heads = c.kv_heads,
                       .d = c.d,
                       .scale = b.scale,
                       .t = t,
                       .workspace = workspace.data()};
  const Seconds fwd = measure([&] { ops.attention_fwd(f, stream); });
  const Seconds bwd = measure([&] { ops.attention_bwd(b, stream); });
  const double product =
      2.0 * static_cast<double>(c.batch * c.heads * c.d) * static_cast<double>(c.tokens * c.tokens) / 2;
  for (const auto& [pass, seconds, products] : {std::tuple{"forward", fwd, 2.0}, std::tuple{"backward", bwd, 5.0}}) {
    std::printf(
        "{\"bench\":\"attention\",\"ops\":\"%s\",\"pass\":\"%s\",\"type\":\"%s\",\"batch\":%ld,\"tokens\":%ld,"
        "\"heads\":%ld,"
        "\"kv_heads\":%ld,\"d\":%ld,\"threads\":%d,\"ms\":%.3f,\"ms_median\":%.3f,\"gflops\":%.1f}\n",
        ops.name, pass, dtype_name(t), c.batch, c.tokens, c.heads, c.kv_heads, c.d, threads, seconds.best * 1e3,
        seconds.median * 1e3, products * product / seconds.best * 1e-9);
    std::fflush(stdout);
  }
}

void decode(const Ops& ops, const Case& c, DType t, int threads) {
  constexpr int64_t kPage = 16;
  const int64_t pages = (c.tokens + kPage - 1) / kPage, elements = c.batch * pages * kPage * c.kv_heads * c.d;
  const int64_t n_q = c.batch * c.heads * c.d;
  Buffer q(n_q * dtype_bytes(t)), o(n_q * dtype_bytes(t)), k(elements * dtype_bytes(t)), v(elements * dtype_bytes(t));
  q.fill(n_q, t, 1);
  k.fill(elements, t, 2);
  v.fill(elements, t, 3);
  std::vector<int32_t> table, start, context;
  for (int64_t i = 0; i < c.batch * pages; ++i) table.push_back(static_cast<int32_t>((i * 7919) % (c.batch * pages)));
  for (int64_t s = 0; s <= c.batch; ++s) start.push_back(static_cast<int32_t>(s));
  context.assign(static_cast<size_t>(c.batch), static_cast<int32_t>(c.tokens));
  const PagedAttention a{.o = o.data(),
                         .q = q.data(),
                         .k_pages = k.data(),
                         .v_pages = v.data(),
                         .page_table = table.data(),
                         .q_start = start.data(),
                         .context_len = context.data(),
                         .n_seq = c.batch,
                         .max_pages = pages,
                         .page_tokens = kPage,
                         .heads = c.heads,
                         .kv_heads = c.kv_heads,
                         .d = c.d,
                         .scale = 0.125f,
                         .t = t};
  const Seconds s = measure([&] { ops.paged_attention(a, Stream{threads}); });
  const double bytes = 2.0 * static_cast<double>(c.batch * c.tokens * c.kv_heads * c.d * dtype_bytes(t));
  std::printf(
      "{\"bench\":\"paged_decode\",\"ops\":\"%s\",\"type\":\"%s\",\"batch\":%ld,\"context\":%ld,\"heads\":%ld,\"kv_"
      "heads\":%ld,"
      "\"d\":%ld,\"threads\":%d,\"ms\":%.3f,\"ms_median\":%.3f,\"gb_s\":%.1f}\n",
      ops.name, dtype_name(t), c.batch, c.tokens, c.heads, c.kv_heads, c.d, threads, s.best * 1e3, s.median * 1e3,
      bytes / s.best * 1e-9);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  const char* isa = argc > 2 ? argv[2] : nullptr;
  const Ops& ops = cpu_ops(isa);
  for (DType t : {DType::f32, DType::bf16}) {
    for (const Case& c : {Case{4, 512, 12, 12, 64}, Case{8, 256, 6, 6, 64}, Case{1, 2048, 32, 8, 128}})
      dense(ops, c, t, threads);
    // Caches of 200 MB and more, so that keys come from memory.
    for (const Case& c : {Case{16, 2048, 32, 8, 128}, Case{16, 4096, 12, 12, 64}}) decode(ops, c, t, threads);
  }
}
