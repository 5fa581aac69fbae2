// How weights of 8 and 4 bits lie in device memory (QuantPack), and how rows of a lie in the product's workspace.
//
// A row of b is its weights, k padded with zeros to a multiple of 64:
//   int8   a byte each
//   int4   eight neighbours in k to four bytes: byte i has q + 8 of the i-th in its low half, of the (i + 4)-th in its
//          high half
// Behind all rows come their scales, (n, blocks) in bf16, a block being a group (int8) or four (int4); and for int4
// behind these the groups' own scales, (n, blocks) of 16 bits, the first group's in the lowest four.
//
// A row of a is whole numbers of 16 bits, each 256 * upper + lower, both signed bytes: all upper ones, then all lower
// ones. Behind all rows come their scales, (m, blocks) in f32.
#pragma once
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/ops.h"
#include "kernels/quant_shape.h"

namespace rw::cuda {

constexpr float kMostOf16 = 127 * 256 + 127;  // the largest that splits into two signed bytes

struct QuantWeights {
  const unsigned char* rows;
  const bf16* scales;
  const uint16_t* own;
  QuantShape shape;
};
inline QuantWeights weights_at(const void* packed, const QuantShape& q) {
  const auto* at = static_cast<const unsigned char*>(packed);
  return {at, reinterpret_cast<const bf16*>(at + q.scales_at), reinterpret_cast<const uint16_t*>(at + q.own_at), q};
}

// Four weights of int4 of a word, the lower or the higher ones of each byte, times their group's own scale: signed
// bytes, at most 120. All in one multiplication: no byte of it passes 255.
__device__ __forceinline__ uint32_t four_of_int4(uint32_t word, int half, uint32_t own) {
  const uint32_t q = word >> (4 * half) & 0x0f0f0f0fU;
  return (q * own + (128 - 8 * own) * 0x01010101U) ^ 0x80808080U;
}
__device__ __forceinline__ uint32_t own_scale(uint32_t four, int64_t group_of_block) {
  return four >> (4 * group_of_block) & 15;
}

struct QuantRows {
  const signed char* numbers;  // (m, 2, padded)
  const float* scales;         // (m, blocks)
};
inline QuantRows rows_at(const void* at, int64_t m, const QuantShape& q) {
  const auto* numbers = static_cast<const signed char*>(at);
  return {numbers, reinterpret_cast<const float*>(numbers + m * 2 * q.padded)};
}

struct QuantProduct {
  void* c;
  const float* bias;
  QuantRows a;
  QuantWeights b;
  int64_t m, ldc;
  DType ct;
};

// What a block of k adds to a sum of c: its exact whole number, 256 * upper + lower, which 32 bits hold, in both
// scales. The fma rounds the product before it is added, whoever inlines this where: every kernel adds the same.
__device__ __forceinline__ int whole_sum(int upper, int lower) {
  return static_cast<int>((static_cast<uint32_t>(upper) << 8) + static_cast<uint32_t>(lower));
}
__device__ __forceinline__ float block_term(int sum, float a_scale, float b_scale) {
  return fmaf(static_cast<float>(sum) * a_scale, b_scale, 0.F);
}
__device__ __forceinline__ void store_result(const QuantProduct& p, int64_t row, int64_t column, float sum) {
  if (p.bias != nullptr) sum += p.bias[column];
  const int64_t at = row * p.ldc + column;
  if (p.ct == DType::f32) static_cast<float*>(p.c)[at] = sum;
  else if (p.ct == DType::bf16) static_cast<bf16*>(p.c)[at] = from_float<bf16>(sum);
  else static_cast<f16*>(p.c)[at] = from_float<f16>(sum);
}

// c of at most four rows; and of any number, on tensor cores.
void quant_few_rows(const QuantProduct&, Stream);
void quant_many_rows(const QuantProduct&, Stream);

}  // namespace rw::cuda
