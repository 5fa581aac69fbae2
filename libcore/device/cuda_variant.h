// What this build has of CUDA.
#pragma once

namespace rw {

// "cuda: enabled", "cuda: simulated" or "cuda: none": as --version says it, and as scripts look for it in a program.
const char* cuda_variant();

}  // namespace rw
