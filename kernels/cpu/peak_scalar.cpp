// Baseline x86-64: SSE2 multiply and add, four floats wide (there is no fused instruction below AVX2).
#include <emmintrin.h>

#include "kernels/cpu/peak_loops.h"

namespace rw {
namespace {

void run(int64_t iterations, float* sink) {
  __m128 a0 = _mm_set1_ps(0.10f), a1 = _mm_set1_ps(0.11f), a2 = _mm_set1_ps(0.12f), a3 = _mm_set1_ps(0.13f);
  __m128 a4 = _mm_set1_ps(0.14f), a5 = _mm_set1_ps(0.15f), a6 = _mm_set1_ps(0.16f), a7 = _mm_set1_ps(0.17f);
  const __m128 x = _mm_set1_ps(0.999f + *sink * 1e-30f), y = _mm_set1_ps(1e-3f);
  for (int64_t i = 0; i < iterations; ++i) {
    a0 = _mm_add_ps(_mm_mul_ps(a0, x), y), a1 = _mm_add_ps(_mm_mul_ps(a1, x), y);
    a2 = _mm_add_ps(_mm_mul_ps(a2, x), y), a3 = _mm_add_ps(_mm_mul_ps(a3, x), y);
    a4 = _mm_add_ps(_mm_mul_ps(a4, x), y), a5 = _mm_add_ps(_mm_mul_ps(a5, x), y);
    a6 = _mm_add_ps(_mm_mul_ps(a6, x), y), a7 = _mm_add_ps(_mm_mul_ps(a7, x), y);
  }
  const __m128 s = _mm_add_ps(_mm_add_ps(_mm_add_ps(a0, a1), _mm_add_ps(a2, a3)),
                              _mm_add_ps(_mm_add_ps(a4, a5), _mm_add_ps(a6, a7)));
  *sink += _mm_cvtss_f32(s);
}

}  // namespace

const PeakLoop peak_scalar_fma = {"sse2 mulps+addps", 8 * 4 * 2, run};

}  // namespace rw
