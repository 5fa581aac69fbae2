// Bandwidth of the kernels that stream over memory. One JSON line per op, type and thread count on stdout:
// {"op", "type", "isa", "threads", "bytes", "gflop", "ms", "gb_per_s", "copy_gb_per_s"}: bytes and flops as cost()
// prices them, the best of the repetitions, and beside it what memcpy of 256 MiB reaches with the same threads (read +
// write). usage: ops_bench [threads...]   (default: 1 and all)
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "kernels/ops.h"

namespace {

using namespace rw;

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double best_s(const std::function<void()>& f) {
  f();
  double best = 1e9;
  const double end = now_s() + 0.25;
  do {
    const double start = now_s();
    f();
    best = std::min(best, now_s() - start);
  } while (now_s() < end);
  return best;
}

// Zero-initialised bytes that outlive a run; contents do not change the speed of these ops, so long as they are finite.
std::vector<char> bytes(int64_t n) { return std::vector<char>(static_cast<size_t>(n), 0); }

double copy_gb_per_s(int threads) {
  const int64_t n = 256 << 20;
  static std::vector<char> from = bytes(n), to = bytes(n);
  const double s = best_s([&] {
#pragma omp parallel num_threads(threads)
    {
      const int64_t part = omp_get_thread_num(), parts = omp_get_num_threads();
      const int64_t begin = n * part / parts, end = n * (part + 1) / parts;
      std::memcpy(to.data() + begin, from.data() + begin, static_cast<size_t>(end - begin));
    }
  });
  return 2e-9 * static_cast<double>(n) / s;
}

struct Bench {
  const Ops& ops;
  Stream stream;
  double copy;

  template <class Args>
  void run(const char* op, DType t, void (*f)(const Args&, Stream), const Args& args) const {
    const Cost c = cost(args);
    const double s = best_s([&] { f(args, stream); }), total = c.bytes_read + c.bytes_written;
    std::printf(
        "{\"op\": \"%s\", \"type\": \"%s\", \"isa\": \"%s\", \"threads\": %d, \"bytes\": %.0f, \"gflop\": %.4f, "
        "\"ms\": %.4f, \"gb_per_s\": %.2f, \"copy_gb_per_s\": %.2f}\n",
        op, dtype_name(t), ops.name, stream.threads, total, c.flops * 1e-9, s * 1e3, total / s * 1e-9, copy);
    std::fflush(stdout);
  }
};

// A GPT-2 124M step's shapes with 8,192 tokens: width 768, ffn 3,072, head 12 x 64, vocabulary 50,257 in chunks of 512.
void activations(const Bench& b, DType t) {
  const int64_t rows = 8192, c = 768, f = 3072, size = dtype_bytes(t);
  std::vector<char> x = bytes(rows * f * size), y = bytes(rows * f * size), z = bytes(rows * f * size);
  std::vector<float> w(f, 1.0f), d_w(f), mean(rows), rstd(rows, 1.0f), table(50257 * c), cos(512 * 32, 1.0f);
  std::vector<int32_t> id(rows), pos(rows);
  for (int64_t r = 0; r < rows; ++r)
    id[r] = static_cast<int32_t>(r * 7919 % 50257), pos[r] = static_cast<int32_t>(r % 512);
  for (NormKind kind : {NormKind::rms, NormKind::layer}) {
    const bool layer = kind == NormKind::layer;
    b.run(layer ? "layer_norm_fwd" : "rms_norm_fwd", t, b.ops.norm_fwd,
          NormFwd{.y = y.data(),
                  .mean = mean.data(),
                  .rstd = rstd.data(),
                  .x = x.data(),
                  .w = w.data(),
                  .b = layer ? d_w.data() : nullptr,
                  .rows = rows,
                  .c = c,
                  .eps = 1e-5f,
                  .kind = kind,
                  .t = t});
    b.run(layer ? "layer_norm_fwd_add" : "rms_norm_fwd_add", t, b.ops.norm_fwd,
          NormFwd{.y = y.data(),
                  .mean = mean.data(),
                  .rstd = rstd.data(),
                  .x = x.data(),
                  .add = z.data(),
                  .sum = x.data(),
                  .w = w.data(),
                  .b = layer ? d_w.data() : nullptr,
                  .rows = rows,
                  .c = c,
                  .eps = 1e-5f,
                  .kind = kind,
                  .t = t});
    NormBwd bwd{.d_x = y.data(),
                .d_w = d_w.data(),
                .d_b = layer ? d_w.data() + c : nullptr,
                .d_y = z.data(),
                .x = x.data(),
                .d_res = y.data(),
                .mean = mean.data(),
                .rstd = rstd.data(),
                .w = w.data(),
                .rows = rows,
                .c = c,
                .kind = kind,
                .t = t};
    b.run(layer ? "layer_norm_bwd" : "rms_norm_bwd", t, b.ops.norm_bwd, bwd);
    bwd.d_w = bwd.d_b = nullptr;
    b.run(layer ? "layer_norm_bwd_d_x" : "rms_norm_bwd_d_x", t, b.ops.norm_bwd, bwd);
  }
  b.run("bias_bwd", t, b.ops.bias_bwd,
        BiasBwd{.d_bias = d_w.data(), .d_y = x.data(), .rows = rows, .n = f, .t = t, .write = Write::accumulate});
  b.run("rope", t, b.ops.rope,
        Rope{.x = x.data(),
             .pos = pos.data(),
             .cos = cos.data(),
             .sin = cos.data(),
             .rows = rows,
             .heads = 12,
             .d = 64,
             .t = t});
  b.run("gelu_fwd", t, b.ops.gelu_fwd, GeluFwd{y.data(), x.data(), rows * f, t});
  b.run("gelu_bwd", t, b.ops.gelu_bwd, GeluBwd{z.data(), z.data(), x.data(), rows * f, t});
  b.run("swiglu_fwd", t, b.ops.swiglu_fwd, SwigluFwd{y.data(), x.data(), rows, f / 2, t});
  b.run("swiglu_bwd", t, b.ops.swiglu_bwd, SwigluBwd{y.data(), z.data(), x.data(), rows, f / 2, t});
  b.run("embedding_fwd", t, b.ops.embedding_fwd,
        EmbeddingFwd{.x = x.data(), .table = table.data(), .id = id.data(), .rows = rows, .c = c, .t = t});
  b.run("embedding_bwd", t, b.ops.embedding_bwd,
        EmbeddingBwd{.d_table = table.data(), .d_x = z.data(), .id = id.data(), .rows = rows, .c = c, .t = t});
  b.run("add", t, b.ops.add, Add{y.data(), y.data(), z.data(), rows * f, t});
  b.run("scale", t, b.ops.scale, Scale{y.data(), 1.0f, rows * f, t});
}

void losses(const Bench& b, DType t) {
  const int64_t rows = 512, v = 50257;
  std::vector<char> logits = bytes(rows * v * dtype_bytes(t));
  std::vector<float> loss(rows), part(rows * 3);
  const std::vector<int32_t> target(rows, 17);
  b.run("cross_entropy_part", t, b.ops.cross_entropy_part,
        CrossEntropyPart{
            .part = part.data(), .logits = logits.data(), .target = target.data(), .rows = rows, .v = v, .t = t});
  b.run("cross_entropy_finish", t, b.ops.cross_entropy_finish,
        CrossEntropyFinish{.loss = loss.data(),
                           .logits = logits.data(),
                           .parts = part.data(),
                           .n_parts = 1,
                           .target = target.data(),
                           .rows = rows,
                           .v = v,
                           .d_scale = 1e-4f,
                           .t = t});
}

void optimizer(const Bench& b) {
  const int64_t n = 32 << 20;
  std::vector<float> p(n, 1.0f), m(n, 1.0f), v(n, 1.0f), g(n, 1.0f);
  std::vector<double> partial(n / 65536);
  b.run("adamw", DType::f32, b.ops.adamw,
        AdamW{.p = p.data(),
              .m = m.data(),
              .v = v.data(),
              .g = g.data(),
              .n = n,
              .lr = 1e-4f,
              .beta1 = 0.9f,
              .beta2 = 0.95f,
              .eps = 1e-8f,
              .weight_decay = 0.1f,
              .grad_scale = 1,
              .step = 10});
  b.run("sum_squares", DType::f32, b.ops.sum_squares, SumSquares{partial.data(), g.data(), n, 65536});
  b.run("cast_f32_to_bf16", DType::f32, b.ops.cast, Cast{m.data(), g.data(), n, DType::bf16, DType::f32});
  b.run("cast_f32_to_f16", DType::f32, b.ops.cast, Cast{m.data(), g.data(), n, DType::f16, DType::f32});
  b.run("cast_bf16_to_f32", DType::bf16, b.ops.cast, Cast{m.data(), g.data(), n, DType::f32, DType::bf16});
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<int> threads;
  for (int i = 1; i < argc; ++i) threads.push_back(std::max(1, std::atoi(argv[i])));
  if (threads.empty()) threads = {1};
  if (argc <= 1 && omp_get_max_threads() > 1) threads.push_back(omp_get_max_threads());
  for (int n : threads) {
    const Bench b{rw::cpu_ops(), {n}, copy_gb_per_s(n)};
    for (DType t : {DType::f32, DType::bf16, DType::f16}) {
      activations(b, t);
      losses(b, t);
    }
    optimizer(b);
  }
}
