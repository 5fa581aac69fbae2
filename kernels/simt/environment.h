// What the environment tells the simulator (the variables: runtime.cuh).
#pragma once
#include <cstdint>

namespace rw::simt {

// The variable's number, from `least` on; `otherwise` where it is not set or empty. CudaError names the variable, what
// was expected and what was found.
int64_t number_from(const char* variable, int64_t least, int64_t otherwise);
// The same of bytes, 1 at least: K, M, G, T, Ki, Mi, Gi and Ti are binary, as in the tools.
int64_t bytes_from(const char* variable, int64_t otherwise);
// The same of a compute capability, times ten, that shared_bytes_of knows.
int capability_from(const char* variable, int otherwise);

// Shared memory that a block may ask for on a device of that compute capability, times ten (CUDA C++ Programming Guide,
// technical specifications per compute capability); 0: none that is known.
int64_t shared_bytes_of(int capability);

}  // namespace rw::simt
