#include "libcore/device/cuda_variant.h"

namespace rw {

const char* cuda_variant() { return "cuda: " RW_CUDA_VARIANT; }

}  // namespace rw
