// The few instructions that C++ has no words for, each beside its meaning: on the host the meaning runs.
#pragma once
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/numbers.cuh"

namespace rw::cuda {

// ---- tensor cores: D (16, 8) = A (16, 16) B (16, 8) + C, a warp together
// ---------------------------------------------
//
// Fragments as PTX ISA 9.7.14 (mma.m16n8k16) lays them out over the lanes, with g = lane / 4 and t = lane % 4:
//   a[0] row g,     columns 2t, 2t+1      a[1] row g + 8, columns 2t, 2t+1
//   a[2] row g,     columns 2t+8, 2t+9    a[3] row g + 8, columns 2t+8, 2t+9
//   b[0] rows 2t, 2t+1, column g          b[1] rows 2t+8, 2t+9, column g
//   c[0], c[1] row g, columns 2t, 2t+1    c[2], c[3] row g + 8, columns 2t, 2t+1
// A register of a and b holds two elements, the lower index in its lower half.

struct FragmentA {
  uint32_t x[4];
};
struct FragmentB {
  uint32_t x[2];
};
struct FragmentC {
  float x[4];
};

// Of whole numbers of 8 bits, D (16, 8) = A (16, 32) B (32, 8) + C, exact (mma.m16n8k32): a register of a and b holds
// four neighbours in k, and k goes in fours where it went in twos. load_matrices reads them as it does 16-bit elements.
struct FragmentI {
  int32_t x[4];
};

template <class T>
__device__ __forceinline__ uint32_t pack_pair(T low, T high);
template <>
__device__ __forceinline__ uint32_t pack_pair<bf16>(bf16 low, bf16 high) {
  return static_cast<uint32_t>(__bfloat16_as_ushort(low)) | static_cast<uint32_t>(__bfloat16_as_ushort(high)) << 16;
}
template <>
__device__ __forceinline__ uint32_t pack_pair<f16>(f16 low, f16 high) {
  return static_cast<uint32_t>(__half_as_ushort(low)) | static_cast<uint32_t>(__half_as_ushort(high)) << 16;
}

#if defined(__CUDACC__)

template <class T>
__device__ __forceinline__ void mma_16x8x16(FragmentC& c, const FragmentA& a, const FragmentB& b);
template <>
__device__ __forceinline__ void mma_16x8x16<bf16>(FragmentC& c, const FragmentA& a, const FragmentB& b) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(c.x[0]), "+f"(c.x[1]), "+f"(c.x[2]), "+f"(c.x[3])
      : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "r"(b.x[0]), "r"(b.x[1]));
}
template <>
__device__ __forceinline__ void mma_16x8x16<f16>(FragmentC& c, const FragmentA& a, const FragmentB& b) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(c.x[0]), "+f"(c.x[1]), "+f"(c.x[2]), "+f"(c.x[3])
      : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "r"(b.x[0]), "r"(b.x[1]));
}

__device__ __forceinline__ void mma_16x8x32(FragmentI& c, const FragmentA& a, const FragmentB& b) {
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
               : "+r"(c.x[0]), "+r"(c.x[1]), "+r"(c.x[2]), "+r"(c.x[3])
               : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "r"(b.x[0]), "r"(b.x[1]));
}

// 2^x within 2^-22, relative (PTX ISA, ex2.approx); 0 where the result would be below the normal numbers.
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

// 16 bytes from global to shared memory without passing registers; done at the wait. Bytes beyond `bytes` (0 or 16) are
// zeros.
__device__ __forceinline__ void copy_async(void* shared, const void* global, int bytes) {
  const auto to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(global), "r"(bytes));
}
__device__ __forceinline__ void copy_async_commit() { asm volatile("cp.async.commit_group;\n" ::); }
// Until at most n of this thread's groups are under way; others' copies need a barrier after it.
template <int n>
__device__ __forceinline__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(n));
}

// Four 8 x 8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8, and gets of each
// matrix the pair at row lane / 4, columns 2 (lane % 4) and + 1. Transposed: the pair at rows 2 (lane % 4) and + 1,
// column lane / 4.
__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], const void* shared_row) {
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(shared_row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at));
}
__device__ __forceinline__ void load_matrices_transposed(uint32_t (&r)[4], const void* shared_row) {
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(shared_row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at));
}

#else

template <class T>
float half_of(uint32_t pair, int which) {
  const auto bits = static_cast<uint16_t>(which == 0 ? pair & 0xffffU : pair >> 16);
  if constexpr (std::is_same_v<T, bf16>) return to_float(__ushort_as_bfloat16(bits));
  else return to_float(__ushort_as_half(bits));
}

struct MmaLane {
  FragmentC* c;
  const FragmentA* a;
  const FragmentB* b;
};
// Products are exact in float, sums are made in double: a tensor core's own order of summation is not documented, so
// nothing may depend on it.
template <class T>
void mma_16x8x16(FragmentC& c, const FragmentA& a, const FragmentB& b) {
  MmaLane mine{&c, &a, &b};
  simt::meet_in_warp(std::is_same_v<T, bf16> ? "mma bf16" : "mma f16", 0xffffffffU, &mine, [](void* const* brought) {
    float am[16][16], bm[16][8];
    for (int lane = 0; lane < 32; ++lane) {
      const auto* l = static_cast<const MmaLane*>(brought[lane]);
      const int g = lane / 4, t = lane % 4;
      for (int i = 0; i < 4; ++i)
        for (int h = 0; h < 2; ++h) am[g + i % 2 * 8][2 * t + i / 2 * 8 + h] = half_of<T>(l->a->x[i], h);
      for (int i = 0; i < 2; ++i)
        for (int h = 0; h < 2; ++h) bm[2 * t + i * 8 + h][g] = half_of<T>(l->b->x[i], h);
    }
    for (int lane = 0; lane < 32; ++lane) {
      FragmentC& out = *static_cast<const MmaLane*>(brought[lane])->c;
      const int g = lane / 4, t = lane % 4;
      for (int i = 0; i < 4; ++i) {
        const int row = g + i / 2 * 8, column = 2 * t + i % 2;
        double sum = out.x[i];
        for (int k = 0; k < 16; ++k) sum += static_cast<double>(am[row][k] * bm[k][column]);
        out.x[i] = static_cast<float>(sum);
      }
    }
  });
}

struct MmaIntLane {
  FragmentI* c;
  const FragmentA* a;
  const FragmentB* b;
};
inline void mma_16x8x32(FragmentI& c, const FragmentA& a, const FragmentB& b) {
  MmaIntLane mine{&c, &a, &b};
  simt::meet_in_warp("mma s8", 0xffffffffU, &mine, [](void* const* brought) {
    int8_t am[16][32], bm[8][32];
    for (int lane = 0; lane < 32; ++lane) {
      const auto* l = static_cast<const MmaIntLane*>(brought[lane]);
      const int g = lane / 4, t = lane % 4;
      for (int i = 0; i < 4; ++i) std::memcpy(&am[g + i % 2 * 8][4 * t + i / 2 * 16], &l->a->x[i], 4);
      for (int i = 0; i < 2; ++i) std::memcpy(&bm[g][4 * t + i * 16], &l->b->x[i], 4);
    }
    for (int lane = 0; lane < 32; ++lane) {
      FragmentI& out = *static_cast<const MmaIntLane*>(brought[lane])->c;
      const int g = lane / 4, t = lane % 4;
      for (int i = 0; i < 4; ++i)
        for (int k = 0; k < 32; ++k) out.x[i] += am[g + i / 2 * 8][k] * bm[2 * t + i % 2][k];
    }
  });
}

inline float exp2_fast(float x) {
  const float y = std::exp2(x);
  return y < 0x1p-126F ? 0.F : y;
}

inline void copy_async(void* shared, const void* global, int bytes) { simt::copy_later(shared, global, bytes); }
inline void copy_async_commit() { simt::commit_copies(); }
template <int n>
void copy_async_wait() {
  simt::wait_for_copies(n);
}

struct MatrixLane {
  const void* row;
  uint32_t* out;
};
inline void load_matrices_as(uint32_t* out, const void* row, bool transposed) {
  MatrixLane mine{row, out};
  if (transposed)
    simt::meet_in_warp("ldmatrix.trans", 0xffffffffU, &mine, [](void* const* brought) {
      for (int lane = 0; lane < 32; ++lane) {
        auto* l = static_cast<MatrixLane*>(brought[lane]);
        for (int m = 0; m < 4; ++m) {
          const auto at = [&](int r, int c) {
            return static_cast<const uint16_t*>(static_cast<MatrixLane*>(brought[m * 8 + r])->row)[c];
          };
          const int g = lane / 4, t = lane % 4;
          l->out[m] = static_cast<uint32_t>(at(2 * t, g)) | static_cast<uint32_t>(at(2 * t + 1, g)) << 16;
        }
      }
    });
  else
    simt::meet_in_warp("ldmatrix", 0xffffffffU, &mine, [](void* const* brought) {
      for (int lane = 0; lane < 32; ++lane) {
        auto* l = static_cast<MatrixLane*>(brought[lane]);
        for (int m = 0; m < 4; ++m) {
          const auto* row = static_cast<const uint16_t*>(static_cast<MatrixLane*>(brought[m * 8 + lane / 4])->row);
          const int t = lane % 4;
          l->out[m] = static_cast<uint32_t>(row[2 * t]) | static_cast<uint32_t>(row[2 * t + 1]) << 16;
        }
      }
    });
}
inline void load_matrices(uint32_t (&r)[4], const void* shared_row) { load_matrices_as(r, shared_row, false); }
inline void load_matrices_transposed(uint32_t (&r)[4], const void* shared_row) {
  load_matrices_as(r, shared_row, true);
}

#endif

}  // namespace rw::cuda
