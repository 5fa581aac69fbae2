// Compiled for the baseline: this is asked before anything is known about the CPU.
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernels/cpu/gemm_amx.h"
#include "kernels/cpu/isa.h"

namespace rw {
namespace {

// Bits of cpuid leaf 7.
constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24, kAmxInt8 = 1u << 25;

bool has(unsigned bits) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & bits) == bits;
}

bool ask() {
  if (!isa_supported(Isa::avx512_bf16) || !has(kAmxBf16 | kAmxTile)) return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA (Linux 5.16)
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

bool amx_ready() {
  static const bool ready = ask();
  return ready;
}

bool amx_int8_ready() {
  static const bool ready = amx_ready() && has(kAmxInt8);
  return ready;
}

}  // namespace rw
