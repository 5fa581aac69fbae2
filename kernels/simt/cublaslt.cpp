#include "kernels/simt/cublaslt.cuh"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "kernels/simt/runtime.cuh"

namespace {

// What the descriptors hold here; the library's own layout of them is its secret.
struct Matrix {
  cudaDataType_t type;
  uint64_t rows, columns;
  int64_t ld;
};
struct Operation {
  cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  void* aux = nullptr;  // of the output's type
  int64_t aux_ld = 0;
};

std::atomic<int64_t> asked_algorithms{0}, fused_gelu{0};
std::atomic<bool> adds_by_shape{false}, promises_gelu{false};

// In how many parts an algorithm adds; 0: in double, as none does.
uint64_t parts_of(const cublasLtMatmulAlgo_t& algorithm) { return algorithm.data[0]; }
uint64_t parts_for(const Matrix& out) { return adds_by_shape ? 1 + out.columns % 5 : 0; }

Matrix matrix(cublasLtMatrixLayout_t m) {
  Matrix out;
  std::memcpy(static_cast<void*>(&out), m->data, sizeof out);
  return out;
}
Operation operation(cublasLtMatmulDesc_t d) {
  Operation out;
  std::memcpy(static_cast<void*>(&out), d->data, sizeof out);
  return out;
}

float get(const void* p, cudaDataType_t t, size_t i) {
  if (t == CUDA_R_32F) return static_cast<const float*>(p)[i];
  if (t == CUDA_R_16BF) return __bfloat162float(static_cast<const __nv_bfloat16*>(p)[i]);
  return __half2float(static_cast<const __half*>(p)[i]);
}
void put(void* p, cudaDataType_t t, size_t i, float v) {
  if (t == CUDA_R_32F) static_cast<float*>(p)[i] = v;
  else if (t == CUDA_R_16BF) static_cast<__nv_bfloat16*>(p)[i] = __float2bfloat16_rn(v);
  else static_cast<__half*>(p)[i] = __float2half_rn(v);
}

// Column-major throughout: element (r, c) is at r + c * ld.
struct Call {
  Operation op;
  Matrix am, bm, cm;
  const void *a, *b;
  void* c;
  float alpha, beta;
  uint64_t parts = 0;
};

enum class Along : uint8_t { columns, rows };
// A matrix as double, its columns one after the other, or its rows.
std::vector<double> widened(const Matrix& m, const void* p, Along along) {
  std::vector<double> all(m.rows * m.columns);
  for (size_t c = 0; c < m.columns; ++c)
    for (size_t r = 0; r < m.rows; ++r)
      all[along == Along::columns ? c * m.rows + r : r * m.columns + c] =
          static_cast<double>(get(p, m.type, r + c * static_cast<size_t>(m.ld)));
  return all;
}

bool takes(const Operation& op, cublasLtEpilogue_t part) { return (op.epilogue & part) == part; }
bool makes_gelu(const Operation& op) { return takes(op, CUBLASLT_EPILOGUE_GELU); }
bool takes_slope(const Operation& op) { return takes(op, CUBLASLT_EPILOGUE_DGELU); }
bool has_aux(const Operation& op) { return takes(op, CUBLASLT_EPILOGUE_GELU_AUX) || takes_slope(op); }

// The tanh form.
constexpr double kA = 0.7978845608028654, kB = 0.044715;  // sqrt(2/pi)
double gelu(double x) { return x / 2 * (1 + std::tanh(kA * (x + kB * x * x * x))); }
double gelu_slope(double x) {
  const double t = std::tanh(kA * (x + kB * x * x * x));
  return (1 + t) / 2 + x / 2 * (1 - t * t) * kA * (1 + 3 * kB * x * x);
}

struct Terms {
  const double *factors, *others;
  size_t stride, n;  // of others
};
double sum_in_parts(const Terms& t, uint64_t parts) {
  float all = 0;
  for (uint64_t part = 0; part < parts; ++part) {
    float sum = 0;
    for (size_t i = part; i < t.n; i += parts) sum += static_cast<float>(t.factors[i] * t.others[i * t.stride]);
    all += sum;
  }
  return static_cast<double>(all);
}

// A sum goes up k, in double; which elements are summed side by side changes none.
void multiply(const Call& call) {
  const Operation& op = call.op;
  // Some of the library's kernels read a bias 16 bytes at a time, and it does not ask where it lies.
  if (takes(op, CUBLASLT_EPILOGUE_BIAS) && reinterpret_cast<uintptr_t>(op.bias) % 16 != 0)
    throw std::runtime_error("misaligned address: a bias at no multiple of 16 bytes in a product");
  const size_t m = call.cm.rows, n = call.cm.columns;
  const size_t k = op.a == CUBLAS_OP_N ? call.am.columns : call.am.rows;
  // op(A) by its columns, which are m long, and op(B) by its columns, which are k long.
  const std::vector<double> a = widened(call.am, call.a, op.a == CUBLAS_OP_N ? Along::columns : Along::rows);
  const std::vector<double> b = widened(call.bm, call.b, op.b == CUBLAS_OP_N ? Along::columns : Along::rows);
  std::vector<double> sums(m);
  for (size_t column = 0; column < n; ++column) {
    std::fill(sums.begin(), sums.end(), 0.0);
    const double* const factors = b.data() + column * k;
    if (call.parts == 0) {
      for (size_t i = 0; i < k; ++i) {
        const double* const from = a.data() + i * m;
        for (size_t row = 0; row < m; ++row) sums[row] += factors[i] * from[row];
      }
    } else {
      for (size_t row = 0; row < m; ++row) sums[row] = sum_in_parts({factors, a.data() + row, m, k}, call.parts);
    }
    for (size_t row = 0; row < m; ++row) {
      double sum = sums[row] * static_cast<double>(call.alpha);
      const size_t to = row + column * static_cast<size_t>(call.cm.ld);
      const size_t beside = row + column * static_cast<size_t>(op.aux_ld);
      if (call.beta != 0) sum += static_cast<double>(call.beta) * static_cast<double>(get(call.c, call.cm.type, to));
      if (takes(op, CUBLASLT_EPILOGUE_BIAS)) sum += static_cast<double>(get(op.bias, call.cm.type, row));
      if (takes_slope(op)) sum *= gelu_slope(static_cast<double>(get(op.aux, call.cm.type, beside)));
      else if (has_aux(op)) put(op.aux, call.cm.type, beside, static_cast<float>(sum));
      if (makes_gelu(op)) sum = gelu(sum);
      put(call.c, call.cm.type, to, static_cast<float>(sum));
    }
  }
}

// The auxiliary matrix must be there, its columns a multiple of 8 elements apart and no shorter than the output's.
// Which types have GELU in a product is the library's secret: here those whose output is of the operands' type, so that
// there are some that have not.
cublasStatus_t may_be_made(const Operation& op, cudaDataType_t operands, const Matrix& out) {
  switch (op.epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_GELU:
    case CUBLASLT_EPILOGUE_GELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU_AUX:
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
    case CUBLASLT_EPILOGUE_DGELU: break;
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (takes(op, CUBLASLT_EPILOGUE_BIAS) && op.bias == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  if (has_aux(op) && (op.aux == nullptr || op.aux_ld % 8 != 0 || op.aux_ld < static_cast<int64_t>(out.rows)))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (has_aux(op) && reinterpret_cast<uintptr_t>(op.aux) % 16 != 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  return (makes_gelu(op) || takes_slope(op)) && out.type != operands ? CUBLAS_STATUS_NOT_SUPPORTED
                                                                     : CUBLAS_STATUS_SUCCESS;
}

}  // namespace

namespace rw::simt {
CublasLtCounts cublaslt_counts() { return {.asked_algorithms = asked_algorithms, .fused_gelu = fused_gelu}; }
void set_cublaslt_ways(const CublasLtWays& ways) {
  adds_by_shape = ways.adds_by_shape;
  promises_gelu = ways.promises_gelu;
}
}  // namespace rw::simt

struct cublasLtContext {};

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    default: return "unknown status";
  }
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* out, cublasComputeType_t compute, cudaDataType_t scale) {
  if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  *out = new cublasLtMatmulDescOpaque_t{};
  const Operation none;
  std::memcpy((*out)->data, &none, sizeof none);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) {
  delete d;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t which,
                                              const void* value, size_t bytes) {
  Operation op = operation(d);
  void* field = nullptr;
  size_t size = 0;
  switch (which) {
    case CUBLASLT_MATMUL_DESC_TRANSA: field = &op.a, size = sizeof op.a; break;
    case CUBLASLT_MATMUL_DESC_TRANSB: field = &op.b, size = sizeof op.b; break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE: field = &op.epilogue, size = sizeof op.epilogue; break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: field = &op.bias, size = sizeof op.bias; break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: field = &op.aux, size = sizeof op.aux; break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: field = &op.aux_ld, size = sizeof op.aux_ld; break;
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (bytes != size) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(field, value, size);
  std::memcpy(d->data, &op, sizeof op);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* out, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t ld) {
  if (ld < static_cast<int64_t>(rows)) return CUBLAS_STATUS_INVALID_VALUE;
  *out = new cublasLtMatrixLayoutOpaque_t{};
  const Matrix m{type, rows, columns, ld};
  std::memcpy((*out)->data, &m, sizeof m);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t m) {
  delete m;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* out) {
  *out = new cublasLtMatmulPreferenceOpaque_t{};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
  delete p;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t,
                                                    const void*, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a_layout, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d_layout,
                                              cublasLtMatmulPreference_t, int asked,
                                              cublasLtMatmulHeuristicResult_t results[], int* found) {
  ++asked_algorithms;
  *found = 0;
  if (asked < 1) return CUBLAS_STATUS_INVALID_VALUE;
  const Operation op = operation(desc);
  const cublasStatus_t status = may_be_made(op, matrix(a_layout).type, matrix(d_layout));
  const bool promises = promises_gelu && (makes_gelu(op) || takes_slope(op));
  if (status != CUBLAS_STATUS_SUCCESS && !promises) return status;
  std::memset(static_cast<void*>(&results[0]), 0, sizeof results[0]);
  results[0].algo.data[0] = parts_for(matrix(d_layout));
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}
// Each algorithm is one for every shape.
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a_layout,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d_layout,
                                       const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulHeuristicResult_t* result) {
  const cublasStatus_t status = may_be_made(operation(desc), matrix(a_layout).type, matrix(d_layout));
  std::memset(static_cast<void*>(result), 0, sizeof *result);
  result->algo = *algorithm;
  result->state = status;
  return status;
}

// As the library does: shapes that do not fit each other and types it has no kernels for are refused at the call.
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algorithm, void*, size_t,
                              cudaStream_t stream) {
  const Call call{operation(desc),
                  matrix(a_layout),
                  matrix(b_layout),
                  matrix(c_layout),
                  a,
                  b,
                  d,
                  *static_cast<const float*>(alpha),
                  *static_cast<const float*>(beta),
                  algorithm != nullptr ? parts_of(*algorithm) : 0};
  const bool a_turned = call.op.a != CUBLAS_OP_N, b_turned = call.op.b != CUBLAS_OP_N;
  const uint64_t a_rows = a_turned ? call.am.columns : call.am.rows, a_k = a_turned ? call.am.rows : call.am.columns;
  const uint64_t b_columns = b_turned ? call.bm.rows : call.bm.columns, b_k = b_turned ? call.bm.columns : call.bm.rows;
  if (c != d || c_layout != d_layout || a_k != b_k || a_rows != call.cm.rows || b_columns != call.cm.columns)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (call.am.type != call.bm.type || (call.cm.type != call.am.type && call.cm.type != CUDA_R_32F))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  const cublasStatus_t status = may_be_made(call.op, call.am.type, call.cm);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (makes_gelu(call.op) || takes_slope(call.op)) ++fused_gelu;
  rw::simt::enqueue(stream, [call] { multiply(call); });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
