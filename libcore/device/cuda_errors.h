// The CUDA backend's failures as errors that a tool can tell: what the kernels' floor throws is caught where the device
// layer calls it.
#pragma once
#include "kernels/cuda/error.h"
#include "libcore/base/error.h"

namespace rw {

// f(), with a CudaError as an Error{runtime} in the same words.
template <class F>
auto as_errors(F&& f) -> decltype(f()) {
  try {
    return f();
  } catch (const cuda::OutOfDeviceMemory& e) {
    fail(ErrorKind::runtime, "out of device memory: {}; use a smaller model, --micro-batch or --seq-len", e.what());
  } catch (const cuda::CudaError& e) {
    fail(ErrorKind::runtime, "{}", e.what());
  }
}

}  // namespace rw
