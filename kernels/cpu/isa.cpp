#include "kernels/cpu/isa.h"

namespace rw {

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::scalar: return "scalar";
    case Isa::avx2: return "avx2";
    case Isa::avx512: return "avx512";
    case Isa::avx512_bf16: return "avx512_bf16";
  }
  return "?";
}

// The builtin reads cpuid and clears every AVX and AVX-512 bit whose registers the OS does not save (XGETBV).
bool isa_supported(Isa isa) {
  __builtin_cpu_init();
  switch (isa) {
    case Isa::scalar: return true;
    case Isa::avx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    case Isa::avx512:
      return isa_supported(Isa::avx2) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    case Isa::avx512_bf16:  // every CPU with the one has the other
      return isa_supported(Isa::avx512) && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni");
  }
  return false;
}

Isa best_isa() {
  Isa best = Isa::scalar;
  for (Isa isa : kIsas) {
    if (isa_supported(isa)) best = isa;
  }
  return best;
}

}  // namespace rw
