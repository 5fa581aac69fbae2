// The instruction sets that the CPU kernels are built for, and which of them this machine (CPU and OS) can run.
#pragma once
#include <cstdint>

namespace rw {

// In rising order of preference; each includes the ones before it. scalar is plain x86-64 (SSE2).
enum class Isa : uint8_t { scalar, avx2, avx512, avx512_bf16 };
constexpr Isa kIsas[] = {Isa::scalar, Isa::avx2, Isa::avx512, Isa::avx512_bf16};

const char* isa_name(Isa isa);
// Whether CPU and OS (XCR0 state saving) allow it.
bool isa_supported(Isa isa);
Isa best_isa();

}  // namespace rw
