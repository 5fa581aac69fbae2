#include <immintrin.h>

#include "kernels/cpu/peak_loops.h"

namespace rw {
namespace {

void run(int64_t iterations, float* sink) {
  __m256 a0 = _mm256_set1_ps(0.10f), a1 = _mm256_set1_ps(0.11f), a2 = _mm256_set1_ps(0.12f), a3 = _mm256_set1_ps(0.13f);
  __m256 a4 = _mm256_set1_ps(0.14f), a5 = _mm256_set1_ps(0.15f), a6 = _mm256_set1_ps(0.16f), a7 = _mm256_set1_ps(0.17f);
  __m256 a8 = _mm256_set1_ps(0.18f), a9 = _mm256_set1_ps(0.19f), a10 = _mm256_set1_ps(0.20f),
         a11 = _mm256_set1_ps(0.21f);
  const __m256 x = _mm256_set1_ps(0.999f + *sink * 1e-30f), y = _mm256_set1_ps(1e-3f);
  for (int64_t i = 0; i < iterations; ++i) {
    a0 = _mm256_fmadd_ps(a0, x, y), a1 = _mm256_fmadd_ps(a1, x, y), a2 = _mm256_fmadd_ps(a2, x, y);
    a3 = _mm256_fmadd_ps(a3, x, y), a4 = _mm256_fmadd_ps(a4, x, y), a5 = _mm256_fmadd_ps(a5, x, y);
    a6 = _mm256_fmadd_ps(a6, x, y), a7 = _mm256_fmadd_ps(a7, x, y), a8 = _mm256_fmadd_ps(a8, x, y);
    a9 = _mm256_fmadd_ps(a9, x, y), a10 = _mm256_fmadd_ps(a10, x, y), a11 = _mm256_fmadd_ps(a11, x, y);
  }
  a0 = _mm256_add_ps(_mm256_add_ps(a0, a1), _mm256_add_ps(a2, a3));
  a4 = _mm256_add_ps(_mm256_add_ps(a4, a5), _mm256_add_ps(a6, a7));
  a8 = _mm256_add_ps(_mm256_add_ps(a8, a9), _mm256_add_ps(a10, a11));
  float out[8];
  _mm256_storeu_ps(out, _mm256_add_ps(a0, _mm256_add_ps(a4, a8)));
  *sink += out[0];
}

}  // namespace

const PeakLoop peak_avx2_fma = {"avx2 vfmadd", 12 * 8 * 2, run};

}  // namespace rw
