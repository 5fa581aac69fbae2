// Matrix products against this machine's measured limits and, where it is installed, against oneDNN. One JSON object on
// stdout: {"threads", "isa", "peak": {type: {"gflops", "instruction"}}, "read_gb_per_s", "peer", "results": [{"op",
// "type", "m", "n", "k", "ms", "gflops", "of_peak", "weights_gb_per_s", "of_read", "peer_ms"}, ...]}; a line per case
// on stderr.
//
//   forward  y(T,out) = x W^T, W packed       dx  d_x(T,in) = d_y W, packed       dw  d_W(out,in) += d_y^T x, nothing
//   packed
//
// Up to 16 rows the weights are rotated over 256 MiB and more, so that they come from memory. Times are the best of the
// repetitions, ours and the peer's alternating.
// usage: gemm_bench [--quick] [--threads N] [--op NAME] [--type f32|bf16] [--rows M] [--isa NAME] [--no-tiles]
// [--no-peer]
#include <omp.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu/gemm.h"
#include "kernels/ops.h"
#include "scripts/bench/gemm_peer.h"

namespace rw::bench {
namespace {

struct Options {
  bool quick = false, tiles = true, peer = true;
  int threads = omp_get_max_threads();
  std::string op, type;
  int64_t rows = 0;
  Isa isa = best_isa();
};

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Zeroed, touched memory on huge pages if the kernel has them: as the arenas of the tools.
class Buffer {
 public:
  explicit Buffer(int64_t bytes) : bytes_(static_cast<size_t>(std::max<int64_t>(bytes, 1))) {
    constexpr size_t kPage = size_t{2} << 20;
    bytes_ = (bytes_ + kPage - 1) / kPage * kPage;
    data_ = static_cast<char*>(std::aligned_alloc(kPage, bytes_));
    if (!data_) throw std::bad_alloc();
    madvise(data_, bytes_, MADV_HUGEPAGE);
    std::memset(data_, 0, bytes_);
  }
  ~Buffer() { std::free(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  char* data() { return data_; }

 private:
  size_t bytes_;
  char* data_;
};

struct Case {
  std::string op;
  DType t;
  int64_t m, n, k;
  bool packed() const { return op != "dw"; }
};

std::vector<Case> cases(const Options& o) {
  constexpr int64_t kLayers[][2] = {{768, 768}, {3072, 768}, {768, 3072}, {4096, 4096}, {32000, 768}};  // out, in
  std::vector<Case> all;
  for (DType t : {DType::f32, DType::bf16}) {
    for (const auto& [out, in] : kLayers) {
      for (int64_t rows : {1, 16, 64, 512, 2048}) {
        all.push_back({"forward", t, rows, out, in});
        if (rows < 512) continue;
        all.push_back({"dx", t, rows, in, out});
        all.push_back({"dw", t, out, in, rows});
      }
    }
  }
  std::erase_if(all, [&](const Case& c) {
    const int64_t rows = c.op == "dw" ? c.k : c.m;
    return (!o.op.empty() && c.op != o.op) || (!o.type.empty() && dtype_name(c.t) != o.type) ||
           (o.rows && rows != o.rows) || (o.quick && (rows == 2048 || rows == 64));
  });
  return all;
}

// GB/s of a sum over 1 GiB.
double read_gb_per_s(int threads, bool quick) {
  const int64_t n = (quick ? 256 : 1024) << 20, words = n / 8;
  Buffer buffer(n);
  const uint64_t* p = reinterpret_cast<const uint64_t*>(buffer.data());
  double best = 1e9;
  uint64_t sum = 0;
  for (int i = 0; i < 4; ++i) {
    const double start = now_s();
#pragma omp parallel for simd num_threads(threads) reduction(+ : sum) schedule(static)
    for (int64_t w = 0; w < words; ++w) sum += p[w];
    best = std::min(best, now_s() - start);
  }
  if (sum) std::abort();
  return 1e-9 * static_cast<double>(n) / best;
}

struct Times {
  double ours_s, peer_s;
};

Times measure(const Case& c, const Options& o) {
  const PanelKernel& kernel = gemm_kernel(o.isa, c.t, o.tiles ? Bf16Unit::best : Bf16Unit::vector);
  const Stream stream{o.threads};
  const int64_t element = dtype_bytes(c.t);
  const int64_t b_bytes =
      c.packed()
          ? panels_packed_bytes(kernel, {.packed = nullptr, .b = nullptr, .n = c.n, .k = c.k, .src_t = c.t, .t = c.t})
          : c.n * c.k * element;
  const int copies = c.op == "forward" && c.m <= 16 ? static_cast<int>((256 << 20) / b_bytes + 1) : 1;
  Buffer a(c.m * c.k * element), b(b_bytes * copies), y(c.m * c.n * 4);
  Gemm g{.c = y.data(), .a = a.data(), .m = c.m, .n = c.n, .k = c.k, .t = c.t, .ct = DType::f32};
  if (c.packed()) {
    g.b_packed = b.data();
  } else {
    g.b = b.data(), g.a_trans = Trans::yes, g.write = Write::accumulate;
  }
  Buffer workspace(panels_workspace(kernel, g, stream));
  g.workspace = workspace.data();
  omp_set_num_threads(o.threads);
  const std::unique_ptr<Peer> peer = o.peer ? make_peer({.m = c.m,
                                                         .n = c.n,
                                                         .k = c.k,
                                                         .t = c.t,
                                                         .packed = c.packed(),
                                                         .a_trans = !c.packed(),
                                                         .copies = copies})
                                            : nullptr;
  const int inner =
      std::max(copies, static_cast<int>(4e7 / (static_cast<double>(c.m * c.n) * static_cast<double>(c.k))));
  Times best{1e9, 1e9};
  const double end = now_s() + (o.quick ? 0.1 : 0.4);
  do {
    double start = now_s();
    for (int i = 0; i < inner; ++i) {
      if (c.packed()) g.b_packed = b.data() + i % copies * b_bytes;
      panels_gemm(kernel, g, stream);
    }
    best.ours_s = std::min(best.ours_s, (now_s() - start) / inner);
    if (!peer) continue;
    start = now_s();
    for (int i = 0; i < inner; ++i) peer->run(i % copies);
    best.peer_s = std::min(best.peer_s, (now_s() - start) / inner);
  } while (now_s() < end);
  return best;
}

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    auto value = [&]() -> std::string {
      if (i + 1 < argc) return argv[++i];
      std::fprintf(stderr, "gemm_bench: %s needs a value\n", flag.c_str());
      std::exit(2);
    };
    if (flag == "--quick") o.quick = true;
    else if (flag == "--no-tiles") o.tiles = false;
    else if (flag == "--no-peer") o.peer = false;
    else if (flag == "--threads") o.threads = std::atoi(value().c_str());
    else if (flag == "--rows") o.rows = std::atol(value().c_str());
    else if (flag == "--op") o.op = value();
    else if (flag == "--type") o.type = value();
    else if (flag == "--isa") {
      const std::string name = value();
      for (Isa isa : kIsas) {
        if (name == isa_name(isa) && isa_supported(isa)) o.isa = isa;
      }
    } else {
      std::fprintf(stderr, "gemm_bench: unknown flag %s (see the head of scripts/bench/gemm_bench.cpp)\n",
                   flag.c_str());
      std::exit(2);
    }
  }
  return o;
}

void run(const Options& o) {
  const char *f32_name = "", *bf16_name = "";
  const double f32_peak = measure_peak_flops(DType::f32, Stream{o.threads}, 0.5, &f32_name);
  const double bf16_peak = measure_peak_flops(DType::bf16, Stream{o.threads}, 0.5, &bf16_name);
  const double read = read_gb_per_s(o.threads, o.quick);
  std::printf(
      "{\"threads\": %d, \"isa\": \"%s\", \"peak\": {\"f32\": {\"gflops\": %.1f, \"instruction\": \"%s\"}, "
      "\"bf16\": {\"gflops\": %.1f, \"instruction\": \"%s\"}}, \"read_gb_per_s\": %.2f, \"peer\": \"%s\", \"results\": "
      "[",
      o.threads, isa_name(o.isa), f32_peak / 1e9, f32_name, bf16_peak / 1e9, bf16_name, read,
      o.peer ? peer_name() : "");
  std::fprintf(stderr, "peak f32 %.0f (%s), bf16 %.0f (%s) GFLOP/s; read %.1f GB/s\n", f32_peak / 1e9, f32_name,
               bf16_peak / 1e9, bf16_name, read);
  const char* separator = "\n";
  for (const Case& c : cases(o)) {
    const Times t = measure(c, o);
    const double flops =
        cost(Gemm{.c = nullptr, .a = nullptr, .m = c.m, .n = c.n, .k = c.k, .t = c.t, .ct = DType::f32}).flops;
    const double weights = static_cast<double>(c.n * c.k * dtype_bytes(c.t));
    const double of_peak = flops / t.ours_s / (c.t == DType::f32 ? f32_peak : bf16_peak);
    const double gb_per_s = 1e-9 * weights / t.ours_s;
    std::printf(
        "%s  {\"op\": \"%s\", \"type\": \"%s\", \"m\": %ld, \"n\": %ld, \"k\": %ld, \"ms\": %.4f, \"gflops\": %.1f, "
        "\"of_peak\": %.3f, \"weights_gb_per_s\": %.2f, \"of_read\": %.3f, \"peer_ms\": ",
        separator, c.op.c_str(), dtype_name(c.t), c.m, c.n, c.k, 1e3 * t.ours_s, 1e-9 * flops / t.ours_s, of_peak,
        gb_per_s, gb_per_s / read);
    if (t.peer_s < 1e9) std::printf("%.4f}", 1e3 * t.peer_s);
    else std::printf("null}");
    separator = ",\n";
    std::fprintf(
        stderr,
        "%-8s %-4s m %5ld n %5ld k %5ld  %8.1f GFLOP/s %5.1f %% of peak  %6.2f GB/s %5.1f %% of read  peer %.1f\n",
        c.op.c_str(), dtype_name(c.t), c.m, c.n, c.k, 1e-9 * flops / t.ours_s, 100 * of_peak, gb_per_s,
        100 * gb_per_s / read, t.peer_s < 1e9 ? 1e-9 * flops / t.peer_s : 0.0);
  }
  std::printf("\n]}\n");
}

}  // namespace
}  // namespace rw::bench

int main(int argc, char** argv) { rw::bench::run(rw::bench::parse(argc, argv)); }
