// Which products with GELU cuBLASLt makes and which are made in parts, as the simulator's twin of it counts; and what
// that twin refuses.
#include <doctest/doctest.h>

#include <vector>

#include "kernels/device_sizes.h"
#include "tests/cuda/cuda_tables.h"

// After the above: the toolkit's names.
#include "kernels/simt/cublaslt.cuh"

using namespace rw;

namespace {

constexpr int64_t kM = 5, kK = 24;

// Room for a matrix at a multiple of 16 bytes, or `past` bytes behind one.
class Room {
 public:
  explicit Room(size_t past = 0, size_t bytes = 1 << 13) : past_(past), all_(bytes) {}
  void* data() { return all_.data() + (64 - reinterpret_cast<uintptr_t>(all_.data()) % 64) + past_; }

 private:
  size_t past_;
  std::vector<char> all_;
};

struct Ways {
  int64_t asked, fused;
  bool operator==(const Ways&) const = default;
};

// f once.
template <class F>
Ways ways_of(const F& f) {
  const simt::CublasLtCounts before = simt::cublaslt_counts();
  f();
  const simt::CublasLtCounts after = simt::cublaslt_counts();
  return {after.asked_algorithms - before.asked_algorithms, after.fused_gelu - before.fused_gelu};
}

struct Operands {
  Room a, b, c, act, x, bias, workspace;
  explicit Operands(size_t past = 0)
      : c(past), act(past), x(past), workspace(0, static_cast<size_t>(kGemmLibraryBytes + (1 << 13))) {}
  Gemm product(int64_t n, DType t, DType ct) {
    return {.c = c.data(),
            .a = a.data(),
            .b = b.data(),
            .m = kM,
            .n = n,
            .k = kK,
            .b_trans = Trans::yes,
            .t = t,
            .ct = ct,
            .workspace = workspace.data()};
  }
};

// The first call of a shape and the second.
void check_ways(Operands& o, const Gemm& plain, const Ways& first, const Ways& second) {
  const auto check = [&](Gemm g) {
    const auto run = [&] { test::waited_cuda_ops().gemm(g, {}); };
    CHECK(ways_of(run) == first);
    CHECK(ways_of(run) == second);
  };
  Gemm g = plain;
  g.gelu = o.act.data();
  check(g);
  g.bias = static_cast<const float*>(o.bias.data());
  check(g);
  g.bias = nullptr, g.gelu = nullptr, g.gelu_slope_of = o.x.data();
  check(g);
}

}  // namespace

TEST_CASE("gelu epilogue: the library's where it has one, which is asked once") {
  Operands o;
  for (const DType t : {DType::f32, DType::bf16, DType::f16})
    check_ways(o, o.product(40, t, t), {.asked = 1, .fused = 1}, {.asked = 0, .fused = 1});
}

TEST_CASE("gelu epilogue: in parts where the library has none, which is remembered") {
  Operands o;
  Gemm g = o.product(48, DType::bf16, DType::f32);
  test::waited_cuda_ops().gemm(g, {});  // the plain product is known; one with a bias is not yet
  const auto run = [&] { test::waited_cuda_ops().gemm(g, {}); };
  g.gelu = o.act.data();
  CHECK(ways_of(run) == Ways{1, 0});
  CHECK(ways_of(run) == Ways{0, 0});
  g.bias = static_cast<const float*>(o.bias.data());
  CHECK(ways_of(run) == Ways{2, 0});
  CHECK(ways_of(run) == Ways{0, 0});
  g.gelu = nullptr, g.bias = nullptr, g.gelu_slope_of = o.x.data();
  CHECK(ways_of(run) == Ways{1, 0});
  CHECK(ways_of(run) == Ways{0, 0});
}

TEST_CASE("gelu epilogue: the library is not asked for what it cannot do") {
  Operands o, shifted(4);
  const auto check = [&](const Gemm& plain, void* act, const void* x) {
    test::waited_cuda_ops().gemm(plain, {});
    Gemm g = plain;
    g.gelu = act;
    CHECK(ways_of([&] { test::waited_cuda_ops().gemm(g, {}); }) == Ways{0, 0});
    g.gelu = nullptr, g.gelu_slope_of = x;
    CHECK(ways_of([&] { test::waited_cuda_ops().gemm(g, {}); }) == Ways{0, 0});
  };
  check(o.product(36, DType::f32, DType::f32), o.act.data(), o.x.data());                    // rows of 36
  check(shifted.product(40, DType::f32, DType::f32), shifted.act.data(), shifted.x.data());  // 4 bytes past 16
  check(o.product(40, DType::f32, DType::f32), shifted.act.data(), shifted.x.data());
  Gemm nothing = o.product(40, DType::f32, DType::f32);
  nothing.k = 0;
  check(nothing, o.act.data(), o.x.data());
  // In c's place there is no auxiliary matrix, and any stride will do.
  Gemm alone = o.product(37, DType::bf16, DType::bf16);
  alone.gelu = alone.c;
  CHECK(ways_of([&] { test::waited_cuda_ops().gemm(alone, {}); }) == Ways{1, 1});
}

TEST_CASE("gelu epilogue: the twin refuses what the library refuses") {
  constexpr int64_t kN = 16;
  Operands o;
  cublasLtHandle_t handle = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  REQUIRE(cublasLtCreate(&handle) == CUBLAS_STATUS_SUCCESS);
  REQUIRE(cublasLtMatrixLayoutCreate(&a, CUDA_R_32F, kN, kK, kN) == CUBLAS_STATUS_SUCCESS);
  REQUIRE(cublasLtMatrixLayoutCreate(&b, CUDA_R_32F, kK, kM, kK) == CUBLAS_STATUS_SUCCESS);
  REQUIRE(cublasLtMatrixLayoutCreate(&d, CUDA_R_32F, kN, kM, kN) == CUBLAS_STATUS_SUCCESS);
  REQUIRE(cublasLtMatmulPreferenceCreate(&preference) == CUBLAS_STATUS_SUCCESS);
  struct Epilogue {
    cublasLtEpilogue_t kind;
    const void* aux;
    int64_t aux_ld;
  };
  const auto status_of = [&](const Epilogue& e) {
    cublasLtMatmulDesc_t op = nullptr;
    REQUIRE(cublasLtMatmulDescCreate(&op, CUBLAS_COMPUTE_32F, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS);
    cublasLtMatmulDescSetAttribute(op, CUBLASLT_MATMUL_DESC_EPILOGUE, &e.kind, sizeof e.kind);
    cublasLtMatmulDescSetAttribute(op, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &e.aux, sizeof e.aux);
    cublasLtMatmulDescSetAttribute(op, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &e.aux_ld, sizeof e.aux_ld);
    cublasLtMatmulHeuristicResult_t best{};
    int found = -1;
    const cublasStatus_t told = cublasLtMatmulAlgoGetHeuristic(handle, op, a, b, d, d, preference, 1, &best, &found);
    CHECK(found == (told == CUBLAS_STATUS_SUCCESS ? 1 : 0));
    const float alpha = 1, beta = 0;
    const cublasStatus_t made = cublasLtMatmul(handle, op, &alpha, o.a.data(), a, o.b.data(), b, &beta, o.c.data(), d,
                                               o.c.data(), d, &best.algo, nullptr, 0, nullptr);
    CHECK(told == made);
    CHECK(cudaStreamSynchronize(nullptr) == cudaSuccess);
    cublasLtMatmulDescDestroy(op);
    return made;
  };
  for (const cublasLtEpilogue_t kind : {CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_DGELU}) {
    CHECK(status_of({kind, o.x.data(), kN}) == CUBLAS_STATUS_SUCCESS);
    CHECK(status_of({kind, o.x.data(), kN + 8}) == CUBLAS_STATUS_SUCCESS);
    CHECK(status_of({kind, o.x.data(), kN + 4}) == CUBLAS_STATUS_INVALID_VALUE);
    CHECK(status_of({kind, o.x.data(), kN - 8}) == CUBLAS_STATUS_INVALID_VALUE);
    CHECK(status_of({kind, o.x.data(), 0}) == CUBLAS_STATUS_INVALID_VALUE);
    CHECK(status_of({kind, nullptr, kN}) == CUBLAS_STATUS_INVALID_VALUE);
    CHECK(status_of({kind, static_cast<char*>(o.x.data()) + 4, kN}) == CUBLAS_STATUS_NOT_SUPPORTED);
  }
  CHECK(status_of({CUBLASLT_EPILOGUE_GELU, nullptr, 0}) == CUBLAS_STATUS_SUCCESS);
  CHECK(status_of({CUBLASLT_EPILOGUE_GELU_BIAS, nullptr, 0}) == CUBLAS_STATUS_INVALID_VALUE);  // there is no bias
  CHECK(status_of({CUBLASLT_EPILOGUE_RELU, nullptr, 0}) == CUBLAS_STATUS_NOT_SUPPORTED);
  cublasLtMatmulPreferenceDestroy(preference);
  for (cublasLtMatrixLayout_t layout : {a, b, d}) cublasLtMatrixLayoutDestroy(layout);
  cublasLtDestroy(handle);
}
