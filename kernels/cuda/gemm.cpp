// Products through cuBLASLt. It thinks in columns: our row-major c(m,n) = a b is its c'(n,m) = b' a', where a stored
// row-major (r,s) matrix is its (s,r) with the same stride.
//
// A bias is f32 and cuBLASLt adds one of the output's type: for 16-bit outputs it is rounded to that first, n numbers
// in the workspace. (Rounding once would take the product in f32 to memory and back: several times c's own bytes.) A
// bias in f32 is copied there too where its address is no multiple of 16: the library cannot be told of it, and some of
// its kernels read 16 bytes at a time.
//
// The library chooses its algorithm by the shape, and another one adds in another order. With fixed_order it is asked
// as if a product had kAskedRows rows, whatever it has: one algorithm, without a sum that is split among blocks, goes
// through k in the same way for each element.
//
// GELU and its slope are epilogues of the library's: what it knows as the output is then the GELU, and c, or the x of a
// slope, its auxiliary matrix. Where it has no such product, gelu_fwd and gelu_bwd follow a plain one.
#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>

#include "kernels/cuda/error.h"
#include "kernels/cuda/gemm_finish.h"
#include "kernels/cuda/table.h"
#include "kernels/device_sizes.h"
#include "kernels/gemm_parts.h"
#include "libcore/base/check.h"

#if defined(RW_SIMT)
#include "kernels/simt/cublaslt.cuh"
#else
#include <cublasLt.h>
#endif

namespace rw::cuda {
namespace {

void check_lt(cublasStatus_t status, const char* call, const Gemm& g) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw CudaError(std::string("cuBLASLt: ") + call + ": " + cublasLtGetStatusString(status) + " (product of " +
                  std::to_string(g.m) + " x " + std::to_string(g.n) + " x " + std::to_string(g.k) + " in " +
                  dtype_name(g.t) + ")");
}

cudaDataType_t library_type(DType t) {
  return t == DType::f32 ? CUDA_R_32F : t == DType::bf16 ? CUDA_R_16BF : CUDA_R_16F;
}

// The library's objects, freed with their scope.
template <class Handle, cublasStatus_t (*destroy)(Handle)>
struct Owned {
  Handle handle = nullptr;
  Owned() = default;
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    if (handle != nullptr) destroy(handle);
  }
};
using MatmulDesc = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

constexpr uint32_t kWidestAccess = 16;  // bytes
// Of the product that stands for all with fixed_order: between a decode's and a prefill's.
constexpr int64_t kAskedRows = 64;

struct MatrixLayout : Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy> {
  MatrixLayout(const Gemm& g, DType t, int64_t rows, int64_t columns, int64_t ld) {
    check_lt(cublasLtMatrixLayoutCreate(&handle, library_type(t), static_cast<uint64_t>(rows),
                                        static_cast<uint64_t>(columns), ld),
             "cublasLtMatrixLayoutCreate", g);
  }
};

// The largest power of two up to 16, the widest of accesses, that divides an address. (That of a more aligned one would
// choose the algorithm by where the arena has put a matrix.)
uint32_t alignment_of(const void* p) {
  const auto bits = reinterpret_cast<uintptr_t>(p);
  uint32_t alignment = kWidestAccess;
  while (alignment > 1 && bits % alignment != 0) alignment /= 2;
  return alignment;
}

// One product as the library takes it: its A is our b, its B our a.
struct Product {
  const void *a, *b;
  void* out;  // of type ct, as bias and aux
  int64_t lda, ldb, ldc;
  bool a_transposed, b_transposed;
  const void* bias;
  const void* aux;  // c beside its GELU, which is written, or what a slope is of, tight; null: none
  cublasLtEpilogue_t epilogue;
};

using Key = std::array<int64_t, 18>;

bool moves_bias(const Gemm& g) {
  return g.bias != nullptr && (g.ct != DType::f32 || alignment_of(g.bias) < kWidestAccess);
}
bool has_fixed_order(const Gemm& g) { return g.fixed_order && g.b_packed != nullptr; }
void* moved_bias(const Gemm& g) { return static_cast<char*>(g.workspace) + kGemmLibraryBytes; }

// A host thread's handle, and the algorithms that the library chose, by shape: asking takes tens of microseconds.
class Library {
 public:
  Library() {
    if (cublasLtCreate(&handle_) != CUBLAS_STATUS_SUCCESS)
      throw CudaError("cuBLASLt: cublasLtCreate failed: is there memory left on the device?");
  }
  ~Library() { cublasLtDestroy(handle_); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  // False: the library has no such product.
  [[nodiscard]] bool multiply(const Gemm& g, const Product& p, Stream s) {
    MatmulDesc op;
    check_lt(cublasLtMatmulDescCreate(&op.handle, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate", g);
    const auto set = [&](cublasLtMatmulDescAttributes_t which, const void* value, size_t bytes) {
      check_lt(cublasLtMatmulDescSetAttribute(op.handle, which, value, bytes), "cublasLtMatmulDescSetAttribute", g);
    };
    const cublasOperation_t op_a = p.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t op_b = p.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    set(CUBLASLT_MATMUL_DESC_TRANSA, &op_a, sizeof op_a);
    set(CUBLASLT_MATMUL_DESC_TRANSB, &op_b, sizeof op_b);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, &p.epilogue, sizeof p.epilogue);
    if (p.bias != nullptr) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p.bias, sizeof p.bias);
    if (p.aux != nullptr) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &p.aux, sizeof p.aux);
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &g.n, sizeof g.n);
    }
    const Layouts of(g, p, g.m);
    const float alpha = 1, beta = g.write == Write::accumulate ? 1.F : 0.F;
    const Key key{g.m,
                  g.n,
                  g.k,
                  p.lda,
                  p.ldb,
                  p.ldc,
                  p.a_transposed,
                  p.b_transposed,
                  static_cast<int64_t>(g.t),
                  static_cast<int64_t>(g.ct),
                  static_cast<int64_t>(p.epilogue),
                  static_cast<int64_t>(beta),
                  alignment_of(p.a),
                  alignment_of(p.b),
                  alignment_of(p.out),
                  alignment_of(p.bias),
                  alignment_of(p.aux),
                  has_fixed_order(g)};
    auto known = algorithms_.find(key);
    if (known == algorithms_.end())
      known = algorithms_.emplace(key, has_fixed_order(g) ? choose_for_all(g, p, op, of) : choose(g, p, op, of)).first;
    if (!known->second) return false;
    if (moves_bias(g)) cast({.y = moved_bias(g), .x = g.bias, .n = g.n, .yt = g.ct, .xt = DType::f32}, s);
    const cublasStatus_t status = cublasLtMatmul(
        handle_, op.handle, &alpha, p.b, of.a.handle, p.a, of.b.handle, &beta, p.out, of.c.handle, p.out, of.c.handle,
        &*known->second, g.workspace, static_cast<size_t>(kGemmLibraryBytes), static_cast<cudaStream_t>(s.native));
    if (may_be_missing(p, status)) {  // after all
      known->second.reset();
      return false;
    }
    check_lt(status, "cublasLtMatmul", g);
    return true;
  }

 private:
  // Of a product with `rows` rows in the place of g's m.
  struct Layouts {
    MatrixLayout a, b, c;
    Layouts(const Gemm& g, const Product& p, int64_t rows)
        : a(g, g.t, p.b_transposed ? g.k : g.n, p.b_transposed ? g.n : g.k, p.ldb),
          b(g, g.t, p.a_transposed ? rows : g.k, p.a_transposed ? g.k : rows, p.lda),
          c(g, g.ct, g.n, rows, p.ldc) {}
  };

  // What the library says of an epilogue that it does not have for these types; of the others it is a fault.
  static bool may_be_missing(const Product& p, cublasStatus_t status) {
    const bool is_plain = p.epilogue == CUBLASLT_EPILOGUE_DEFAULT || p.epilogue == CUBLASLT_EPILOGUE_BIAS;
    return !is_plain && (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE);
  }

  // kAskedRows' algorithm, when the library takes it for g's rows too. Its a is not transposed: a stride is a row's.
  std::optional<cublasLtMatmulAlgo_t> choose_for_all(const Gemm& g, const Product& p, const MatmulDesc& op,
                                                     const Layouts& of) {
    CHECK(!p.a_transposed, "gemm: a fixed order of sums is for rows of a");
    const std::optional<cublasLtMatmulAlgo_t> algorithm = choose(g, p, op, Layouts(g, p, kAskedRows));
    if (!algorithm) return algorithm;
    cublasLtMatmulHeuristicResult_t result{};
    const cublasStatus_t status = cublasLtMatmulAlgoCheck(handle_, op.handle, of.a.handle, of.b.handle, of.c.handle,
                                                          of.c.handle, &*algorithm, &result);
    if (may_be_missing(p, status)) return std::nullopt;
    check_lt(status, "cublasLtMatmulAlgoCheck, of the algorithm that all numbers of rows share", g);
    return algorithm;
  }

  // Sums over k may be split among blocks, which leave theirs in the workspace, to be added in one order; not by
  // atomics, and not with fixed_order.
  std::optional<cublasLtMatmulAlgo_t> choose(const Gemm& g, const Product& p, const MatmulDesc& op, const Layouts& of) {
    Preference preference;
    check_lt(cublasLtMatmulPreferenceCreate(&preference.handle), "cublasLtMatmulPreferenceCreate", g);
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t which, const auto& value) {
      check_lt(cublasLtMatmulPreferenceSetAttribute(preference.handle, which, &value, sizeof value),
               "cublasLtMatmulPreferenceSetAttribute", g);
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kGemmLibraryBytes));
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        static_cast<uint32_t>(has_fixed_order(g) ? CUBLASLT_REDUCTION_SCHEME_NONE
                                                 : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(p.b));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(p.a));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(p.out));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(p.out));
    cublasLtMatmulHeuristicResult_t best{};
    int found = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle_, op.handle, of.a.handle, of.b.handle, of.c.handle, of.c.handle, preference.handle, 1, &best, &found);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || may_be_missing(p, status)) return std::nullopt;
    check_lt(status, "cublasLtMatmulAlgoGetHeuristic", g);
    if (found == 0 || best.state != CUBLAS_STATUS_SUCCESS) return std::nullopt;
    return best.algo;
  }

  cublasLtHandle_t handle_ = nullptr;
  std::map<Key, std::optional<cublasLtMatmulAlgo_t>> algorithms_;  // none: there is none
};

Library& library() {
  thread_local Library one;  // a handle belongs to the device that its host thread has chosen
  return one;
}

Product plain_product(const Gemm& g) {
  const bool packed = g.b_packed != nullptr;
  Product p{};
  p.a = g.a;
  p.b = packed ? g.b_packed : g.b;
  p.a_transposed = g.a_trans == Trans::yes;
  p.b_transposed = packed || g.b_trans == Trans::yes;
  p.lda = g.lda != 0 ? g.lda : p.a_transposed ? g.m : g.k;
  p.ldb = packed ? g.k : g.ldb != 0 ? g.ldb : p.b_transposed ? g.k : g.n;
  p.out = g.c;
  p.ldc = g.ldc != 0 ? g.ldc : g.n;
  p.bias = moves_bias(g) ? moved_bias(g) : g.bias;
  p.epilogue = g.bias != nullptr ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  return p;
}

void multiply(const Gemm& g, Stream s) {
  CHECK(g.write == Write::overwrite || g.ct == DType::f32, "gemm: accumulating needs f32 results");
  if (g.k == 0) return gemm_of_nothing(g, g.ldc != 0 ? g.ldc : g.n, s);
  if (!library().multiply(g, plain_product(g), s))
    check_lt(CUBLAS_STATUS_NOT_SUPPORTED, "no algorithm for this shape and alignment", g);
}

// GELU, or its slope, of the sums where they are.
Product product_with_gelu(const Gemm& g) {
  Product p = plain_product(g);
  if (g.gelu_slope_of != nullptr) {
    p.aux = g.gelu_slope_of;
    p.epilogue = CUBLASLT_EPILOGUE_DGELU;
    return p;
  }
  p.out = g.gelu;
  p.aux = g.gelu != g.c ? g.c : nullptr;
  const int gelu = p.aux != nullptr ? CUBLASLT_EPILOGUE_GELU_AUX : CUBLASLT_EPILOGUE_GELU;
  p.epilogue = static_cast<cublasLtEpilogue_t>(gelu | (g.bias != nullptr ? CUBLASLT_EPILOGUE_BIAS : 0));
  return p;
}

// False where the library has no such product. It wants an auxiliary matrix's stride to be a multiple of 8 elements;
// its kernels with one read and write both matrices 16 bytes at a time.
bool multiply_with_gelu(const Gemm& g, Stream s) {
  const Product p = product_with_gelu(g);
  const bool fits = p.aux == nullptr || (g.n % 8 == 0 && alignment_of(p.aux) >= 16 && alignment_of(p.out) >= 16);
  return g.k > 0 && fits && library().multiply(g, p, s);
}

}  // namespace

int64_t gemm_workspace(const Gemm& g, Stream) { return device_gemm_workspace(g); }

// Packed is the plain (n,k): what cuBLASLt reads best, and what a checkpoint's weight is already.
int64_t packed_bytes(const GemmPack& p, Stream) { return device_packed_bytes(p); }

void gemm(const Gemm& g, Stream s) {
  if (g.m == 0 || g.n == 0) return;
  if (has_gelu(g) && multiply_with_gelu(g, s)) return;
  in_parts(
      g, [s](const Gemm& plain) { multiply(plain, s); }, [s](const GeluFwd& a) { gelu_fwd(a, s); },
      [s](const GeluBwd& a) { gelu_bwd(a, s); });
}

}  // namespace rw::cuda
