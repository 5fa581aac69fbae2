#include "libcore/plan/price/op_price.h"

#include <algorithm>
#include <cmath>

#include "libcore/base/error.h"
#include "libcore/plan/price/real.h"

namespace rw {
namespace {

bool is_product(const OpCall& call) { return call.op == "gemm" || call.op == "quant_gemm"; }
bool is_backward(const OpCall& call) { return call.op == "attention_bwd"; }
bool is_paged(const OpCall& call) { return call.op == "paged_attention"; }
bool is_attention(const OpCall& call) { return call.op == "attention_fwd" || is_paged(call) || is_backward(call); }

// Tiles of a product and what they reach of the largest one's rate: those of cuBLAS and CUTLASS for 16-bit products
// (NVIDIA, Matrix Multiplication Background User's Guide: 256x128 is the most efficient, then 128x128, 64x128).
struct Tile {
  double share_of_rows, rate;
};
constexpr Tile kTiles[] = {{1, 1.0}, {0.5, 0.92}, {0.25, 0.75}};

// A fused kernel's rate by head size and sequence, relative to heads of 128 and long sequences: its softmax costs the
// same whatever the head's size, and a block of queries' start and end the same whatever the length. Head sizes 64 to
// 256 and sequences of 512 to 65,536 occur among the published runs that this was found with
// (docs/planner_accuracy.md).
constexpr double kHeadHalf = 32, kSequenceHalf = 256, kAtHead128 = 1 + kHeadHalf / 128;

// Bytes that unfused attention moves for one score, in 16 bits, beside its operands (Megatron's kernels with dropout):
// forward writes scores, scaled masked softmax reads and writes, dropout reads and writes with a byte of mask, and the
// second product reads; backward the same for the two gradients.
constexpr double kScoreBytesForward = 13, kScoreBytesBackward = 19;

// Products of cost's forward and backward: 2 and 5 of a causal half each.
constexpr double kBackwardProducts = 2.5;

// Of the bandwidth, what reading weights or keys and values from end to end reaches: 0.8 is what aiconfigurator takes
// for decode steps on GPUs; here plain reads and decode steps of one stream made 0.73 to 0.94 (docs/performance.md).
constexpr double kStreamed = 0.8;

// With fewer rows a product is a decode step's: bound by reading its weights, and its rows are no side that matters.
constexpr int64_t kFewRows = 256;
double size_efficiency(const OpShape& shape, const DeviceType& device) {
  const int64_t least = std::min(shape.n, shape.k);
  const double side = real(shape.m < kFewRows ? least : std::min(shape.m, least));
  return side / (side + device.gemm_half_size);
}

double sequence_of(const OpCall& call) {
  // Flops: 2 s per row, head and element (kernels/cost_attention.cpp).
  const double per_row = call.cost.flops / (is_backward(call) ? kBackwardProducts : 1.0);
  return per_row / (2 * real(call.shape.m) * real(call.shape.n) * real(call.shape.k));
}

double fused_seconds(const OpCall& call, const DeviceType& device, double peak, double rate) {
  const double head = real(call.shape.k), s = sequence_of(call);
  // A CPU's kernel has no units to fill.
  const double shape =
      device.compute_units > 1 ? kAtHead128 * head / (head + kHeadHalf) * s / (s + kSequenceHalf) : 1.0;
  return call.cost.flops / (peak * device.attention_fraction * rate * shape);
}

// Whole squares of scores; the backward has two products for each of the forward's.
double unfused_seconds(const OpCall& call, const DeviceType& device, double peak) {
  const double s = sequence_of(call), heads = real(call.shape.m) / s * real(call.shape.n);
  const auto square = static_cast<int64_t>(std::llround(s)), batch = static_cast<int64_t>(std::llround(heads));
  // 16-byte vectors need heads of a multiple of 8 elements.
  const double rate = peak * device.gemm_fraction * (call.shape.k % 8 == 0 ? 1.0 : device.misaligned_fraction);
  const double product = 2 * s * s * real(call.shape.k) * heads / rate;
  const double products = product / tile_efficiency(device, square, square, batch) +
                          product / tile_efficiency(device, square, call.shape.k, batch);
  const double scores = s * s * heads / (device.memory_bandwidth * device.memory_fraction);
  return is_backward(call) ? 2 * products + kScoreBytesBackward * scores : products + kScoreBytesForward * scores;
}

}  // namespace

double peak_flops(const DeviceType& device, DType t) {
  const double peak = t == DType::f32 ? device.peak_f32 : t == DType::bf16 ? device.peak_bf16 : device.peak_f16;
  if (!(peak > 0))
    fail(ErrorKind::usage,
         "device {}: it has no peak for {} products; give peak-{} in the cluster file or another "
         "--precision",
         device.name, dtype_name(t), dtype_name(t));
  return peak;
}

double tile_efficiency(const DeviceType& device, int64_t m, int64_t n, int64_t batch) {
  if (m <= 0 || n <= 0 || batch <= 0 || device.compute_units <= 1) return 1;
  double best = 0;
  for (const Tile& tile : kTiles) {
    const double rows = std::max(1.0, real(device.tile_m) * tile.share_of_rows), columns = real(device.tile_n);
    const double tiles = real(batch) * std::ceil(real(m) / rows) * std::ceil(real(n) / columns);
    const double units = real(device.compute_units), waves = std::ceil(tiles / units);
    best = std::max(best, tile.rate * real(batch) * real(m) * real(n) / (waves * units * rows * columns));
  }
  return best;
}

double op_seconds(const OpCall& call, const DeviceType& device, DType t, const AttentionKernel& attention) {
  const double bytes = call.cost.bytes_read + call.cost.bytes_written;
  const bool streams = (is_product(call) && call.shape.m < kFewRows) || is_paged(call);
  double s = bytes / (device.memory_bandwidth *
                      (streams ? std::max(kStreamed, device.memory_fraction) : device.memory_fraction));
  if (is_product(call)) {
    const double rate = peak_flops(device, t) * device.gemm_fraction *
                        tile_efficiency(device, call.shape.m, call.shape.n) * size_efficiency(call.shape, device);
    s = std::max(s, call.cost.flops / rate);
  } else if (is_attention(call) && call.cost.flops > 0) {
    const double peak = peak_flops(device, t);
    s = std::max(
        s, attention.fused ? fused_seconds(call, device, peak, attention.rate) : unfused_seconds(call, device, peak));
  }
  return real(call.calls) * (s + device.launch);
}

}  // namespace rw
