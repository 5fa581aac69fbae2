// Products of warpgroups as the simulator makes them: late, and with the faults that hardware would not tell.
#include "kernels/cuda/warpgroup.cuh"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "kernels/cuda/table.h"

// After the above: the toolkit's names.
#include "kernels/simt/runtime.cuh"

using namespace rw;
using cuda::bf16;

namespace {

constexpr int kRows = 64, kColumns = 64;

struct Skip {
  bool fence_copies = false, begin = false, settle = false;
};

// A tile whose element (r, c) is r - c, times itself, turned: sums[r][c] of one warpgroup. `early`: whether every sum
// was NaN between the call and the wait.
void square(float* sums, int* early, const bf16* from, Skip skip) {
  DYN_SHARED_1024(bf16, tile);
  const int thread = static_cast<int>(threadIdx.x), g = thread % 32 / 4, t = thread % 4;
  for (int i = thread; i < kRows * kColumns / 8; i += cuda::kWarpgroup)
    cuda::copy_async(tile + cuda::panel_place(kRows, i / 8, i % 8 * 8), from + i * 8, 16);
  cuda::copy_async_commit();
  cuda::copy_async_wait<0>();
  if (!skip.fence_copies) cuda::fence_shared_writes();
  __syncthreads();
  cuda::FragmentC c[kColumns / 8] = {};
  cuda::WarpgroupProducts products;
  if (!skip.begin) products.begin();
  for (int k = 0; k < kColumns; k += 16)
    products.add_columns<bf16, kColumns>(c, cuda::along_columns<kRows>(tile, 0, k),
                                         cuda::along_columns<kRows>(tile, 0, k), cuda::Sums::go_on);
  products.commit();
  if (!(c[0].x[0] == c[0].x[0]) && !(c[7].x[3] == c[7].x[3])) atomicAdd(early, 1);
  if (!skip.settle) products.wait<0>();
  for (int j = 0; j < kColumns / 8; ++j)
    for (int i = 0; i < 4; ++i) sums[(thread / 32 * 16 + g + i / 2 * 8) * kColumns + 8 * j + 2 * t + i % 2] = c[j].x[i];
}

std::string run(std::vector<float>& sums, int& early, Skip skip) {
  std::vector<bf16> tile;
  for (int i = 0; i < kRows * kColumns; ++i)
    tile.push_back(__float2bfloat16_rn(static_cast<float>(i / kColumns - i % kColumns)));
  sums.assign(kRows * kColumns, -1);
  early = 0;
  try {
    LAUNCH(square, dim3(1), dim3(cuda::kWarpgroup), kRows * kColumns * 2, nullptr, sums.data(), &early, tile.data(),
           skip);
    RW_CUDA(cudaStreamSynchronize(nullptr));
  } catch (const std::exception& e) {
    cudaGetLastError();
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("warpgroup: sums are there after the wait, and not before") {
  std::vector<float> sums;
  int early = 0;
  CHECK(run(sums, early, {}) == "");
  CHECK(early == cuda::kWarpgroup);
  for (int r = 0; r < kRows; r += 7)
    for (int c = 0; c < kColumns; ++c) {
      int expected = 0;
      for (int k = 0; k < kColumns; ++k) expected += (r - k) * (c - k);
      CHECK(sums[static_cast<size_t>(r * kColumns + c)] == static_cast<float>(expected));
    }
  CHECK(run(sums, early, {.settle = true}) == "");
  CHECK(!(sums[5] == sums[5]));
}

TEST_CASE("warpgroup: what hardware would not tell is a fault") {
  std::vector<float> sums;
  int early = 0;
  CHECK(run(sums, early, {.fence_copies = true}).find("was not fenced before the last barrier") != std::string::npos);
  CHECK(run(sums, early, {.begin = true}).find("without wgmma.fence") != std::string::npos);
  CHECK(run(sums, early, {}) == "");
}

namespace {

// Of tiles at byte 32768: columns 16, 64, 112 of 128 rows as B; rows 0, 16, 112 of the same; row 64, column 80 of 192
// rows as A.
void describe(uint64_t* out) {
  DYN_SHARED_1024(bf16, shared);
  const bf16* const tile = shared + 16384;
  if (threadIdx.x > 0) return;
  for (const int column : {16, 64, 112}) *out++ = cuda::along_columns<128>(tile, 0, column).descriptor;
  for (const int row : {0, 16, 112}) *out++ = cuda::along_rows<128>(tile, row, 0).descriptor;
  *out = cuda::along_columns<192>(tile, 64, 80).descriptor;
}

}  // namespace

// The words that the Triton compiler (3.9, for sm_90) makes for an attention of one tile: scores of 64 rows and 128
// keys with heads of 128, and their product with the values. Its kernels are known to run on such devices.
TEST_CASE("warpgroup: factors are described as compilers for this device do") {
  constexpr uint64_t kBase = 4611686293305294848U, kValues = 67108864;  // swizzle, eight rows; the next panel
  constexpr uint64_t kAt = 32768 >> 4;
  std::vector<uint64_t> found(7, 0);
  constexpr int kBytes = 65536;
  RW_CUDA(cudaFuncSetAttribute(reinterpret_cast<const void*>(describe), cudaFuncAttributeMaxDynamicSharedMemorySize,
                               kBytes));
  LAUNCH(describe, dim3(1), dim3(1), kBytes, nullptr, found.data());
  RW_CUDA(cudaStreamSynchronize(nullptr));
  CHECK(found == std::vector<uint64_t>{kBase + kAt + 2, kBase + kAt + 1024, kBase + kAt + 1030, kBase + kValues + kAt,
                                       kBase + kValues + kAt + 128, kBase + kValues + kAt + 896,
                                       kBase + kAt + 1536 + 512 + 2});
}

TEST_CASE("warpgroup: a device of compute capability 9.0 has products of warpgroups, another has not") {
  CHECK(cuda::has_warpgroup_products());
  simt::set_capability(80);
  CHECK(!cuda::has_warpgroup_products());
  simt::set_capability(100);
  CHECK(!cuda::has_warpgroup_products());
  simt::set_capability(90);
}
