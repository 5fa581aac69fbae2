// Rounding weights to 8 and 4 bits, and back: a warp has a block of a row.
#include "kernels/cuda/quant_layout.cuh"
#include "kernels/cuda/quant_rounding.cuh"
#include "kernels/cuda/table.h"
#include "kernels/device_sizes.h"

namespace rw::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;

// A scale in bf16, not below x >= 0.
__device__ __forceinline__ bf16 scale_above(float x) {
  const unsigned bits = __float_as_uint(x);
  return __ushort_as_bfloat16(static_cast<uint16_t>(x == x ? (bits + 0xffffU) >> 16 : 0x7fc0U));
}
__device__ __forceinline__ float inverse(float x) { return x > 0 ? 1.F / x : 0.F; }

__device__ __forceinline__ float nearest_int4(float x) {
  const auto y = static_cast<float>(round_to_int(fmaxf(-9.F, fminf(9.F, x))));
  return fmaxf(-8.F, fminf(7.F, y));
}

// Squared error of n elements on the scale s.
__device__ float error_of(const float* x, int64_t n, float s) {
  const float by = inverse(s);
  float sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    const float d = fmaf(-nearest_int4(x[i] * by), s, x[i]);
    sum = fmaf(d, d, sum);
  }
  return sum;
}

// The choice that errs least; of equals the first.
struct Choice {
  float error;
  int which;
};
__device__ __forceinline__ Choice better(Choice a, Choice b) {
  return b.error < a.error || (b.error == a.error && b.which < a.which) ? b : a;
}
// Among the lanes whose numbers differ in the bits of `lanes` alone.
__device__ __forceinline__ Choice best_of(Choice mine, int lanes) {
  for (int d = 1; d <= lanes; d *= 2) {
    const Choice other{__shfl_xor_sync(kFullMask, mine.error, d), __shfl_xor_sync(kFullMask, mine.which, d)};
    mine = better(mine, other);
  }
  return mine;
}

struct Int4Scales {
  bf16 shared;
  uint32_t own;  // four of 4 bits
};

// Of a block of four groups. Eight lanes have a group: they try scales near the one that just holds its largest
// element; then four lanes of each try shared scales by which the largest of these is 15, 14, 13 or 12 times, each with
// the own scales that come nearest.
__device__ Int4Scales int4_scales(const float* x, int64_t group, int lane) {
  const int g = lane / 8, i = lane % 8;
  const float* const mine = x + g * group;
  float max = 0, bad = 0;
  for (int64_t j = i; j < group; j += 8) {
    max = fmaxf(max, fabsf(mine[j]));
    bad += mine[j] * 0.F;
  }
  for (int d = 1; d < 8; d *= 2) max = fmaxf(max, __shfl_xor_sync(kFullMask, max, d));
  if (__any_sync(kFullMask, bad != bad)) return {scale_above(bad != bad ? bad : NAN), 0x1111U};
  if (max < 0x1p-100F) max = 0;
  const auto scale_of = [max](int which) { return max / (6.5F + 0.25F * static_cast<float>(which)); };
  Choice choice{error_of(mine, group, scale_of(i)), i};
  if (i < 4) choice = better(choice, {error_of(mine, group, scale_of(8 + i)), 8 + i});
  const float wanted = scale_of(best_of(choice, 4).which);
  float largest = wanted;
  for (int d = 8; d < kWarp; d *= 2) largest = fmaxf(largest, __shfl_xor_sync(kFullMask, largest, d));

  const int top = lane % 4;
  const bf16 shared = scale_above(largest / static_cast<float>(15 - top));
  const float unit = to_float(shared);
  const int near = static_cast<int>(wanted * inverse(unit) + 0.5F);
  Choice own{INFINITY, 0};
  for (int s = near > 1 ? near - 1 : 0; s <= near + 1 && s <= 15; ++s)
    own = better(own, {error_of(mine, group, unit * static_cast<float>(s)), s});
  float error = own.error;
  for (int d = 8; d < kWarp; d *= 2) error += __shfl_xor_sync(kFullMask, error, d);
  const int best = best_of({error, top}, 2).which;
  uint32_t all = 0;
  for (int j = 0; j < 4; ++j) all |= static_cast<uint32_t>(__shfl_sync(kFullMask, own.which, 8 * j + best)) << (4 * j);
  return {scale_above(largest / static_cast<float>(15 - best)), all};
}

__global__ void __launch_bounds__(kThreads)
    quant_pack_kernel(unsigned char* packed, const float* b, int64_t ld, QuantShape q) {
  SHARED(float, elements, kWarps* kMostBlock);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t warp = global_index() / kWarp, row = warp / q.blocks, block = warp % q.blocks;
  if (row >= q.n) return;  // the whole warp
  float* const x = elements + static_cast<int>(threadIdx.x) / kWarp * kMostBlock;
  const int64_t first = block * q.block, left = q.k - first;
  const int64_t room = q.padded - first < q.block ? q.padded - first : q.block;
  for (int64_t i = lane; i < q.block; i += kWarp) x[i] = i < left ? b[row * ld + first + i] : 0.F;
  __syncwarp();
  unsigned char* const to = packed + row * q.row_bytes;
  auto* const scales = reinterpret_cast<bf16*>(packed + q.scales_at);
  if (q.wide) {
    const bf16 scale = scale_above(warp_largest(x, q.block, lane) / 127.F);
    const float by = inverse(to_float(scale));
    for (int64_t i = lane; i < room; i += kWarp)
      to[first + i] = static_cast<unsigned char>(round_to_int(x[i] * by) & 0xff);
    if (lane == 0) scales[row * q.blocks + block] = scale;
    return;
  }
  const Int4Scales s = int4_scales(x, q.group, lane);
  // A byte has two elements of one group: they are at most 4 apart in eight, and groups have 32 or more.
  for (int64_t i = lane; i < room / 2; i += kWarp) {
    const int64_t low = i / 4 * 8 + i % 4;
    const float by = inverse(to_float(s.shared) * static_cast<float>(own_scale(s.own, low / q.group)));
    const auto bits = [&](int64_t j) { return static_cast<unsigned>(static_cast<int>(nearest_int4(x[j] * by)) + 8); };
    to[first / 2 + i] = static_cast<unsigned char>(bits(low) | bits(low + 4) << 4);
  }
  if (lane == 0) {
    scales[row * q.blocks + block] = s.shared;
    reinterpret_cast<uint16_t*>(packed + q.own_at)[row * q.blocks + block] = static_cast<uint16_t>(s.own);
  }
}

__global__ void quant_unpack_kernel(float* b, int64_t ld, QuantWeights w) {
  const QuantShape& q = w.shape;
  const int64_t i = global_index();
  if (i >= q.n * q.k) return;
  const int64_t row = i / q.k, k = i % q.k, block = row * q.blocks + k / q.block;
  const unsigned char* const from = w.rows + row * q.row_bytes;
  int whole = 0;
  if (q.wide) {
    whole = static_cast<signed char>(from[k]);
  } else {
    const int bits = from[k / 8 * 4 + k % 4] >> (k % 8 / 4 * 4) & 15;
    whole = (bits - 8) * static_cast<int>(own_scale(w.own[block], k % q.block / q.group));
  }
  b[row * ld + k] = static_cast<float>(whole) * to_float(w.scales[block]);
}

}  // namespace

int64_t quant_packed_bytes(const QuantPack& p, Stream) { return device_quant_packed_bytes(p); }

void quant_pack(const QuantPack& p, Stream s) {
  const QuantShape q = quant_shape(p.bits, p.group, p.n, p.k);
  if (q.n * q.blocks == 0) return;
  LAUNCH(quant_pack_kernel, blocks_for(q.n * q.blocks, kWarps), dim3(kThreads), 0, native(s),
         as<unsigned char>(p.packed), p.b, p.ldb != 0 ? p.ldb : p.k, q);
}

void quant_unpack(const QuantUnpack& p, Stream s) {
  const QuantShape q = quant_shape(p.bits, p.group, p.n, p.k);
  if (q.n * q.k == 0) return;
  LAUNCH(quant_unpack_kernel, blocks_for(q.n * q.k, kThreads), dim3(kThreads), 0, native(s), p.b,
         p.ldb != 0 ? p.ldb : p.k, weights_at(p.packed, q));
}

}  // namespace rw::cuda
