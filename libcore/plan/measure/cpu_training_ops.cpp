#include "libcore/plan/measure/cpu_training_ops.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "libcore/base/check.h"
#include "libcore/model/exec.h"
#include "libcore/plan/measure/median_seconds.h"

namespace rw {
namespace {

// Zeroed memory, aligned as kernels want workspaces.
class Memory {
 public:
  void* take(int64_t bytes) {
    constexpr size_t kAlign = 64;
    const size_t size = (static_cast<size_t>(std::max<int64_t>(bytes, 1)) + kAlign - 1) / kAlign * kAlign;
    void* data = std::aligned_alloc(kAlign, size);
    CHECK(data != nullptr, "no memory for %zu bytes", size);
    std::memset(data, 0, size);
    blocks_.emplace_back(data, &std::free);
    return data;
  }

 private:
  std::vector<std::unique_ptr<void, decltype(&std::free)>> blocks_;
};

constexpr int64_t kRows = 1024;
constexpr int64_t kSequences = 8, kSequence = 256, kHeads = 4, kHead = 64;

}  // namespace

double linear_layer_flops(const TrainingOpsJob& job, int64_t size) {
  const Ops& ops = this_cpu_ops();
  const Stream stream{.threads = job.threads};
  Memory memory;
  const auto matrix = [&](int64_t rows, DType t) { return memory.take(rows * size * dtype_bytes(t)); };
  const GemmPack pack{
      .packed = nullptr, .b = matrix(size, DType::f32), .n = size, .k = size, .src_t = DType::f32, .t = job.t};
  void* packed = memory.take(ops.packed_bytes(pack, stream));
  GemmPack filled = pack;
  filled.packed = packed;
  ops.gemm_pack(filled, stream);
  Gemm forward{
      .c = matrix(kRows, job.t), .a = matrix(kRows, job.t), .m = kRows, .n = size, .k = size, .t = job.t, .ct = job.t};
  forward.b_packed = packed;
  forward.workspace = memory.take(ops.gemm_workspace(forward, stream));
  Gemm weights{.c = matrix(size, DType::f32),
               .a = matrix(kRows, job.t),
               .b = matrix(kRows, job.t),
               .m = size,
               .n = size,
               .k = kRows,
               .t = job.t,
               .ct = DType::f32};
  weights.a_trans = Trans::yes;
  weights.write = Write::accumulate;
  weights.workspace = memory.take(ops.gemm_workspace(weights, stream));
  const double s = median_seconds(
      [&] {
        ops.gemm(forward, stream);
        ops.gemm(forward, stream);  // the input gradient is a product of the same kind
        ops.gemm(weights, stream);
      },
      job.seconds);
  return 2 * cost(forward).flops / s + cost(weights).flops / s;
}

double attention_flops(const TrainingOpsJob& job) {
  const Ops& ops = this_cpu_ops();
  const Stream stream{.threads = job.threads};
  Memory memory;
  const auto rows = [&] { return memory.take(kSequences * kSequence * kHeads * kHead * dtype_bytes(job.t)); };
  std::vector<int32_t> starts;
  for (int64_t i = 0; i <= kSequences; ++i) starts.push_back(static_cast<int32_t>(i * kSequence));
  AttentionFwd forward{};
  forward.o = rows(), forward.q = rows(), forward.k = rows(), forward.v = rows();
  forward.lse = static_cast<float*>(memory.take(kSequences * kSequence * kHeads * 4));
  forward.cu_seqlens = starts.data();
  forward.n_seq = kSequences, forward.heads = kHeads, forward.kv_heads = kHeads, forward.d = kHead;
  forward.scale = 1 / std::sqrt(static_cast<float>(kHead));
  forward.t = job.t;
  AttentionBwd backward{};
  backward.d_q = rows(), backward.d_k = rows(), backward.d_v = rows(), backward.d_o = rows();
  backward.q = forward.q, backward.k = forward.k, backward.v = forward.v, backward.o = forward.o;
  backward.lse = forward.lse;
  backward.cu_seqlens = starts.data();
  backward.n_seq = kSequences, backward.heads = kHeads, backward.kv_heads = kHeads, backward.d = kHead;
  backward.scale = forward.scale;
  backward.t = job.t;
  backward.workspace = memory.take(ops.attention_workspace(backward, stream));
  forward.workspace = backward.workspace;
  const double s = median_seconds(
      [&] {
        ops.attention_fwd(forward, stream);
        ops.attention_bwd(backward, stream);
      },
      job.seconds);
  return (cost(forward).flops + cost(backward).flops) / s;
}

SizeLaw size_law(double small_size, double small_speed, double large_size, double large_speed) {
  CHECK(small_size < large_size && small_speed > 0 && large_speed > 0, "two sizes and their speeds");
  const double slope = small_speed / small_size - large_speed / large_size;
  if (large_speed <= small_speed || slope <= 0) return {.large = std::max(small_speed, large_speed), .half = 0};
  const double half = std::min((large_speed - small_speed) / slope, large_size);
  return {.large = large_speed * (large_size + half) / large_size, .half = half};
}

}  // namespace rw
