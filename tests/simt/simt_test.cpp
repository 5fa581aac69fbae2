// The simulator itself: what it runs is right, and what it is there to catch it catches.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/arch.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vectors.cuh"

using namespace rw;

namespace {

template <class F>
std::string fault_of(F&& run) {
  cudaGetLastError();
  try {
    run();
    RW_CUDA(cudaStreamSynchronize(nullptr));
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

void sums(float* out, const float* x, int n) {
  float v = 0;
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) v += x[i];
  v = cuda::block_sum(v);
  const float again = cuda::block_sum(threadIdx.x == 0 ? v : 0.F);
  if (threadIdx.x == 0) out[blockIdx.x] = again;
}
// As block_sum, without the barrier that keeps the next call off the scratch.
float racy_sum(float v) {
  SHARED(float, part, 32);
  v = cuda::warp_reduce(v, cuda::Sum{});
  part[threadIdx.x / 32] = v;
  __syncthreads();
  v = threadIdx.x % 32 < blockDim.x / 32 ? part[threadIdx.x % 32] : 0.F;
  return cuda::warp_reduce(v, cuda::Sum{});
}
void racy_sums(float* out, const float* x) {
  const float a = racy_sum(x[threadIdx.x]);
  const float b = racy_sum(2 * x[threadIdx.x]);
  if (threadIdx.x == 0) out[0] = a + b;
}
void leaves_early(float* out, int n) {
  if (static_cast<int>(threadIdx.x) >= n) return;
  __syncthreads();
  out[threadIdx.x] = 1;
}
void lanes_disagree(float* out) {
  if (threadIdx.x % 2 == 0) __syncwarp();
  else out[threadIdx.x] = __shfl_sync(0xffffffffU, 1.F, 0);
}
void half_a_warp(float* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_xor_sync(0xffffffffU, 1.F, 1);
}
void reads_shared(float* out) {
  SHARED(float, s, 64);
  if (threadIdx.x == 0) s[1] = 1;
  __syncthreads();
  out[threadIdx.x] = s[threadIdx.x];
}
void uses_dynamic(float* out, int n) {
  DYN_SHARED(float, s);
  for (int i = static_cast<int>(threadIdx.x); i < n; i += 32) s[i] = static_cast<float>(i);
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < n; i += 32) out[i] = s[n - 1 - i];
}
void uses_both(float* out, int n) {
  DYN_SHARED(float, s);
  SHARED(float, last, 32);
  for (int i = static_cast<int>(threadIdx.x); i < n; i += 32) s[i] = static_cast<float>(i);
  last[threadIdx.x] = s[0];
  __syncthreads();
  out[threadIdx.x] = last[31 - threadIdx.x];
}
void shuffles(float* down, float* up, float* xored, unsigned* votes) {
  const auto me = static_cast<float>(threadIdx.x);
  down[threadIdx.x] = __shfl_down_sync(0xffffffffU, me, 3U);
  up[threadIdx.x] = __shfl_up_sync(0xffffffffU, me, 3U);
  xored[threadIdx.x] = __shfl_xor_sync(0xffffffffU, me, 5);
  votes[threadIdx.x] = __ballot_sync(0xffffffffU, threadIdx.x % 3 == 0);
}
void misaligned(float* at) { cuda::load_piece(at + 1); }
void index_of(int* out) {
  const unsigned i = ((blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x) * blockDim.x * blockDim.y +
                     threadIdx.y * blockDim.x + threadIdx.x;
  out[i] += static_cast<int>(i) + 1;
}
template <class T>
void product(float* c, const T* a, const T* b) {
  const int lane = static_cast<int>(threadIdx.x), g = lane / 4, t = lane % 4;
  cuda::FragmentA fa;
  cuda::FragmentB fb;
  cuda::FragmentC fc{};
  for (int i = 0; i < 4; ++i) {
    const T* at = a + (g + i % 2 * 8) * 16 + 2 * t + i / 2 * 8;
    fa.x[i] = cuda::pack_pair(at[0], at[1]);
  }
  for (int i = 0; i < 2; ++i) {
    const T* at = b + (2 * t + i * 8) * 8 + g;
    fb.x[i] = cuda::pack_pair(at[0], at[8]);
  }
  cuda::mma_16x8x16<T>(fc, fa, fb);
  for (int i = 0; i < 4; ++i) c[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = fc.x[i];
}
void matrices(uint32_t* plain, uint32_t* turned, const uint16_t* x) {
  SHARED(uint16_t, s, 256);
  for (int i = static_cast<int>(threadIdx.x); i < 256; i += 32) s[i] = x[i];
  __syncwarp();
  uint32_t r[4];
  cuda::load_matrices(r, s + threadIdx.x * 8);
  for (int m = 0; m < 4; ++m) plain[threadIdx.x * 4 + m] = r[m];
  cuda::load_matrices_transposed(r, s + threadIdx.x * 8);
  for (int m = 0; m < 4; ++m) turned[threadIdx.x * 4 + m] = r[m];
}

}  // namespace

TEST_CASE("simt: a block's sum is the same in every order") {
  std::vector<float> x(1000), out(3);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 7);
  for (const int threads : {32, 64, 96, 1024})
    for (const simt::Order order : simt::kOrders) {
      simt::set_order(order);
      std::fill(out.begin(), out.end(), -1.F);
      LAUNCH(sums, dim3(3), dim3(threads), 0, nullptr, out.data(), x.data(), 997);
      CHECK(out[0] == -1);  // nothing is done before somebody waits
      RW_CUDA(cudaStreamSynchronize(nullptr));
      double want = 0;
      for (int i = 0; i < 997; ++i) want += i % 7;
      for (const float v : out) CHECK(v == want);
    }
  simt::set_order(simt::Order::forward);
}

TEST_CASE("simt: the fast power of two knows no numbers below the normal ones") {
  CHECK(cuda::exp2_fast(3) == 8);
  CHECK(cuda::exp2_fast(-126) == 0x1p-126F);
  CHECK(cuda::exp2_fast(-127) == 0);
  CHECK(cuda::exp2_fast(-INFINITY) == 0);
  CHECK(std::abs(cuda::exp2_fast(0.3F) - 1.2311444133449163F) <= 1.25F * 0x1p-22F);
}

TEST_CASE("simt: a missing barrier shows in some order") {
  std::vector<float> x(128, 1.F), out(1);
  int wrong = 0;
  for (const simt::Order order : simt::kOrders) {
    simt::set_order(order);
    LAUNCH(racy_sums, dim3(1), dim3(128), 0, nullptr, out.data(), x.data());
    RW_CUDA(cudaStreamSynchronize(nullptr));
    if (out[0] != 384) ++wrong;
  }
  simt::set_order(simt::Order::forward);
  CHECK(wrong > 0);
}

TEST_CASE("simt: faults name the kernel, block and thread") {
  std::vector<float> out(64);
  const auto holds = [](const std::string& text, const char* part) {
    CAPTURE(text);
    CHECK(text.find(part) != std::string::npos);
  };
  holds(fault_of([&] { LAUNCH(leaves_early, dim3(1), dim3(64), 0, nullptr, out.data(), 40); }),
        "24 threads have left the kernel while others wait at a block barrier in leaves_early, block (0, 0, 0)");
  holds(fault_of([&] { LAUNCH(lanes_disagree, dim3(1), dim3(32), 0, nullptr, out.data()); }),
        "lanes of one warp disagree");
  holds(fault_of([&] { LAUNCH(half_a_warp, dim3(1), dim3(32), 0, nullptr, out.data()); }),
        "waits for lanes that do not come");
  holds(fault_of([&] { LAUNCH(leaves_early, dim3(1), dim3(1025), 0, nullptr, out.data(), 40); }),
        "a block of 1025 threads");
  holds(fault_of([&] { LAUNCH(leaves_early, dim3(1, 65536), dim3(32), 0, nullptr, out.data(), 40); }), "at most 65535");
  holds(fault_of([&] { LAUNCH(leaves_early, dim3(1), dim3(32), 300 << 10, nullptr, out.data(), 40); }),
        "bytes of shared memory");
  for (const auto& [capability, kib] : {std::pair{86, 99}, {80, 163}, {90, 227}}) {
    simt::set_capability(capability);
    const int most = kib << 10;
    const auto* kernel = reinterpret_cast<const void*>(uses_dynamic);
    CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most) == cudaSuccess);
    CHECK(fault_of([&] { LAUNCH(uses_dynamic, dim3(1), dim3(32), most, nullptr, out.data(), 64); }).empty());
    holds(fault_of([&] { LAUNCH(uses_dynamic, dim3(1), dim3(32), most + 1, nullptr, out.data(), 64); }),
          ("(at most " + std::to_string(most) + ")").c_str());
    CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most + 1) == cudaErrorInvalidValue);
    cudaGetLastError();
  }
  simt::set_capability(90);
  // 48 KiB, dynamic and declared together, are there without being asked for.
  constexpr size_t kPlain = 48 << 10, kDeclared = 32 * sizeof(float);
  const auto* both = reinterpret_cast<const void*>(uses_both);
  const auto told = [&](size_t bytes) {
    return fault_of([&] { LAUNCH(uses_both, dim3(1), dim3(32), bytes, nullptr, out.data(), 64); });
  };
  CHECK(told(kPlain - kDeclared).empty());
  holds(told(kPlain - kDeclared + 4), "beside 128 declared ones, which were not asked for");
  holds(told(kPlain + 4), "that were not asked for");
  CHECK(cudaFuncSetAttribute(both, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kPlain)) ==
        cudaSuccess);
  CHECK(told(kPlain).empty());
  holds(told(kPlain + 4), "that were not asked for");
  holds(fault_of([&] { LAUNCH(misaligned, dim3(1), dim3(32), 0, nullptr, out.data()); }), "not aligned");
  // The device goes on after a fault.
  CHECK(fault_of([&] { LAUNCH(leaves_early, dim3(1), dim3(64), 0, nullptr, out.data(), 64); }).empty());
  CHECK(out[63] == 1);
}

TEST_CASE("simt: memory begins as poison") {
  std::vector<float> out(64);
  LAUNCH(reads_shared, dim3(1), dim3(64), 0, nullptr, out.data());
  RW_CUDA(cudaStreamSynchronize(nullptr));
  CHECK(out[1] == 1);
  CHECK(std::isnan(out[0]));
  CHECK(std::isnan(out[63]));
  float* device = nullptr;
  RW_CUDA(cudaMalloc(reinterpret_cast<void**>(&device), 44));
  CHECK(std::isnan(device[10]));
  CHECK(simt::device_memory().bytes == 44);
  RW_CUDA(cudaFree(device));
  CHECK(simt::device_memory().bytes == 0);
}

TEST_CASE("simt: grids and dynamic memory") {
  std::vector<int> index(2 * 3 * 5 * 7 * 4);
  LAUNCH(index_of, dim3(5, 3, 2), dim3(7, 4), 0, nullptr, index.data());
  std::vector<float> out(1001);
  LAUNCH(uses_dynamic, dim3(1), dim3(32), 1001 * 4, nullptr, out.data(), 1001);
  RW_CUDA(cudaStreamSynchronize(nullptr));
  for (size_t i = 0; i < index.size(); ++i) CHECK(index[i] == static_cast<int>(i) + 1);
  CHECK(out[0] == 1000);
  CHECK(out[1000] == 0);
}

TEST_CASE("simt: warp operations") {
  std::vector<float> down(32), up(32), xored(32);
  std::vector<unsigned> votes(32);
  LAUNCH(shuffles, dim3(1), dim3(32), 0, nullptr, down.data(), up.data(), xored.data(), votes.data());
  RW_CUDA(cudaStreamSynchronize(nullptr));
  for (unsigned i = 0; i < 32; ++i) {
    CHECK(down[i] == static_cast<float>(i + 3 < 32 ? i + 3 : i));
    CHECK(up[i] == static_cast<float>(i >= 3 ? i - 3 : i));
    CHECK(xored[i] == static_cast<float>(i ^ 5U));
    CHECK(votes[i] == 0x49249249U);
  }
}

TEST_CASE_TEMPLATE("simt: a tensor core's product", T, cuda::bf16, cuda::f16) {
  std::vector<T> a(16 * 16), b(16 * 8);
  for (size_t i = 0; i < a.size(); ++i)
    a[i] = cuda::from_float<T>(static_cast<float>(static_cast<int>(i * 7 % 11) - 5));
  for (size_t i = 0; i < b.size(); ++i)
    b[i] = cuda::from_float<T>(static_cast<float>(static_cast<int>(i * 5 % 13) - 6));
  std::vector<float> c(16 * 8);
  LAUNCH(product<T>, dim3(1), dim3(32), 0, nullptr, c.data(), a.data(), b.data());
  RW_CUDA(cudaStreamSynchronize(nullptr));
  for (size_t i = 0; i < 16; ++i)
    for (size_t j = 0; j < 8; ++j) {
      int want = 0;
      for (size_t k = 0; k < 16; ++k)
        want += (static_cast<int>((i * 16 + k) * 7 % 11) - 5) * (static_cast<int>((k * 8 + j) * 5 % 13) - 6);
      CHECK(c[i * 8 + j] == static_cast<float>(want));
    }
}

TEST_CASE("simt: ldmatrix") {
  std::vector<uint16_t> x(256);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint16_t>(i);
  std::vector<uint32_t> plain(128), turned(128);
  LAUNCH(matrices, dim3(1), dim3(32), 0, nullptr, plain.data(), turned.data(), x.data());
  RW_CUDA(cudaStreamSynchronize(nullptr));
  for (uint32_t lane = 0; lane < 32; ++lane)
    for (uint32_t m = 0; m < 4; ++m) {
      const uint32_t g = lane / 4, t = lane % 4, at = m * 64;
      CHECK(plain[lane * 4 + m] == ((at + g * 8 + 2 * t) | (at + g * 8 + 2 * t + 1) << 16));
      CHECK(turned[lane * 4 + m] == ((at + 2 * t * 8 + g) | (at + (2 * t + 1) * 8 + g) << 16));
    }
}

TEST_CASE("simt: a stream's work waits for its events, and only for them") {
  cudaStream_t a = nullptr, b = nullptr;
  cudaEvent_t ready = nullptr;
  RW_CUDA(cudaStreamCreate(&a));
  RW_CUDA(cudaStreamCreate(&b));
  RW_CUDA(cudaEventCreate(&ready));
  int x = 0, y = 0, later = 0;
  simt::enqueue(a, [&] { x = 7; });
  RW_CUDA(cudaEventRecord(ready, a));
  simt::enqueue(a, [&] { later = 1; });
  RW_CUDA(cudaStreamWaitEvent(b, ready, 0));
  simt::enqueue(b, [&] { y = x; });
  CHECK(cudaEventQuery(ready) == cudaErrorNotReady);
  RW_CUDA(cudaStreamSynchronize(b));
  CHECK(y == 7);
  CHECK(later == 0);
  RW_CUDA(cudaStreamSynchronize(a));
  CHECK(later == 1);
  RW_CUDA(cudaEventDestroy(ready));
  RW_CUDA(cudaStreamDestroy(a));
  RW_CUDA(cudaStreamDestroy(b));
}

TEST_CASE("simt: device memory runs out") {
  simt::set_memory_limit(1000);
  void* p = nullptr;
  CHECK_THROWS_AS(RW_CUDA(cudaMalloc(&p, 1001)), cuda::OutOfDeviceMemory);
  RW_CUDA(cudaMalloc(&p, 1000));
  RW_CUDA(cudaFree(p));
  simt::set_memory_limit(0);
}
