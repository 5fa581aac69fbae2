// Whether this device's warpgroup products do what warpgroup.cuh says they do: small whole numbers, whose sums are
// exact in every order, in tiles of the kinds that attention has. An instruction that reads its factors by a descriptor
// gives plausible numbers when the descriptor is wrong; so each device is asked once before anything relies on it.
#include <atomic>
#include <cstdio>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/table.h"
#include "kernels/cuda/warpgroup.cuh"

namespace rw::cuda {
namespace {

constexpr int kRows = 128, kDepth = 128, kHalf = kDepth / 2;  // rows of a tile; columns, two panels of them

__device__ __forceinline__ int left(int row, int column) { return (row * 5 + column * 3) % 7 - 3; }
__device__ __forceinline__ int right(int row, int column) { return (row * 3 + column * 11) % 13 - 6; }

template <class T>
__device__ __forceinline__ uint32_t left_pair(int row, int column) {
  return pack_pair<T>(from_float<T>(static_cast<float>(left(row, column))),
                      from_float<T>(static_cast<float>(left(row, column + 1))));
}

// How many sums are not left(64.., k) right(k or column, ...): rows 64.. of one tile with another, turned; and rows
// 64.. of left(), in registers, with columns `column`.. of that tile, rows 16...
template <class T, int kN>
__global__ void __launch_bounds__(kWarpgroup) warpgroup_probe_kernel(int* wrong) {
  DYN_SHARED_1024(T, shared);
  T *const a = shared, *const b = shared + kRows * kDepth;
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kDepth; i += kWarpgroup) {
    const int row = i / kDepth, column = i % kDepth, at = panel_place(kRows, row, column / 8 * 8) + column % 8;
    a[at] = from_float<T>(static_cast<float>(left(row, column)));
    b[at] = from_float<T>(static_cast<float>(right(row, column)));
  }
  fence_shared_writes();
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % kWarp, g = lane / 4, t = lane % 4;
  const int row = 64 + static_cast<int>(threadIdx.x) / kWarp * 16 + g;
  constexpr int kFirst = kN == kDepth ? 0 : kHalf;  // of the columns that are summed into
  FragmentC s[kN / 8] = {}, o[kN / 8] = {};
  FragmentA p[kDepth / 16 - 1];
  WarpgroupProducts products;
#pragma unroll
  for (int k = 0; k < kDepth - 16; k += 16)
    p[k / 16] = {{left_pair<T>(row, k + 2 * t), left_pair<T>(row + 8, k + 2 * t), left_pair<T>(row, k + 2 * t + 8),
                  left_pair<T>(row + 8, k + 2 * t + 8)}};
  settle(s), settle(o), settle(p);
  products.begin();
#pragma unroll
  for (int k = 0; k < kDepth; k += 16)
    products.add_columns<T, kN>(s, along_columns<kRows>(a, 64, k), along_columns<kRows>(b, 0, k),
                                k == 0 ? Sums::begin : Sums::go_on);
  products.commit();
#pragma unroll
  for (int k = 0; k < kDepth - 16; k += 16)
    products.add_rows<T, kN>(o, p[k / 16], along_rows<kRows>(b, 16 + k, kFirst), Sums::go_on);
  products.commit();
  products.wait<0>();
  settle(s), settle(o), settle(p);
  // Sums that are looked up by number lie in memory: those of the products stay in registers.
  float turned_sums[kN / 8][4], straight_sums[kN / 8][4];
#pragma unroll
  for (int j = 0; j < kN / 8; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) turned_sums[j][i] = s[j].x[i], straight_sums[j][i] = o[j].x[i];
  int found = 0;
  for (int j = 0; j < kN / 8; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int r = row + i / 2 * 8, column = 8 * j + 2 * t + i % 2;
      int turned = 0, straight = 0;
      for (int k = 0; k < kDepth; ++k) turned += left(r, k) * right(column, k);
      for (int k = 0; k < kDepth - 16; ++k) straight += left(r, k) * right(16 + k, kFirst + column);
      found += turned_sums[j][i] == static_cast<float>(turned) ? 0 : 1;
      found += straight_sums[j][i] == static_cast<float>(straight) ? 0 : 1;
    }
  if (found > 0) atomicAdd(wrong, found);
}

template <class T, int kN>
void probe(int* wrong) {
  constexpr size_t kShared = size_t{2} * 2 * kRows * kDepth;
  allow_shared(warpgroup_probe_kernel<T, kN>, kShared);
  LAUNCH((warpgroup_probe_kernel<T, kN>), dim3(1), dim3(kWarpgroup), kShared, cudaStream_t{}, wrong);
}

struct Counter {
  int* at = nullptr;
  Counter() { RW_CUDA(cudaMalloc(reinterpret_cast<void**>(&at), sizeof *at)); }
  ~Counter() { cudaFree(at); }
  Counter(const Counter&) = delete;
  Counter& operator=(const Counter&) = delete;
};

bool products_are_right() {
  const Counter counter;
  int wrong = 0;
  RW_CUDA(cudaMemcpy(counter.at, &wrong, sizeof wrong, cudaMemcpyHostToDevice));
  probe<bf16, 64>(counter.at);
  probe<bf16, 128>(counter.at);
  probe<f16, 64>(counter.at);
  probe<f16, 128>(counter.at);
  RW_CUDA(cudaMemcpy(&wrong, counter.at, sizeof wrong, cudaMemcpyDeviceToHost));
  if (wrong > 0)
    std::fprintf(stderr,
                 "warning: %d sums of this GPU's warpgroup products (wgmma) are not what they should be; attention "
                 "runs on mma instead, slower: please report the GPU and its driver\n",
                 wrong);
  return wrong == 0;
}

}  // namespace

bool has_warpgroup_products() {
  enum Known : int8_t { not_asked, right_sums, wrong_sums };
  constexpr int kMostDevices = 64;
  static std::atomic<Known> known[kMostDevices];
  int device = 0, major = 0, minor = 0;
  RW_CUDA(cudaGetDevice(&device));
  RW_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  RW_CUDA(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  if (major != 9 || minor != 0 || device >= kMostDevices) return false;
  if (known[device] == not_asked) known[device] = products_are_right() ? right_sums : wrong_sums;
  return known[device] == right_sums;
}

}  // namespace rw::cuda
