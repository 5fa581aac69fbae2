// Devices and errors of the simulated runtime.
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/simt/device_state.cuh"
#include "kernels/simt/environment.h"

namespace rw::simt {

void set_devices(int n) { device().devices = n; }
void set_capability(int capability) { device().capability = capability; }

}  // namespace rw::simt

using namespace rw::simt;  // NOLINT: the functions below are C's

namespace {

constexpr int kRuntimeVersion = 13000;
constexpr int kMultiprocessors = 4;  // few: a grid that is sized by it stays small here

int shared_bytes() { return static_cast<int>(shared_bytes_of(device().capability)); }
bool exists(int number) { return number >= 0 && number < device().devices; }

}  // namespace

extern "C" {

cudaError_t cudaDeviceSynchronize() {
  Device& d = device();
  const std::lock_guard lock(d.mutex);
  for (Queue* queue : std::vector<Queue*>(d.queues)) run(*queue, nullptr);
  return fault_code(d);
}
cudaError_t cudaGetDeviceCount(int* n) {
  *n = device().devices > 0 ? device().devices : 0;
  if (*n > 0) return cudaSuccess;
  return tell(device().devices < 0 ? cudaErrorInsufficientDriver : cudaErrorNoDevice);
}
cudaError_t cudaGetDevice(int* i) {
  *i = device().number;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int i) {
  if (!exists(i)) return tell(cudaErrorInvalidDevice);
  device().number = i;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = kRuntimeVersion;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = device().devices < 0 ? kRuntimeVersion - 1000 : kRuntimeVersion;
  return cudaSuccess;
}
// A device that reaches all others, directly; it names itself by its number.
cudaError_t cudaDeviceCanAccessPeer(int* can, int i, int peer) {
  if (!exists(i) || !exists(peer)) return tell(cudaErrorInvalidDevice);
  *can = i != peer ? 1 : 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr, int i, int peer) {
  return cudaDeviceCanAccessPeer(value, i, peer);
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int bytes, int i) {
  if (!exists(i) || bytes < 13) return tell(cudaErrorInvalidDevice);
  std::snprintf(text, static_cast<size_t>(bytes), "0000:%02x:00.0", static_cast<unsigned>(i) & 0xffU);
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* out, int i) {
  if (!exists(i)) return tell(cudaErrorInvalidDevice);
  std::memset(static_cast<void*>(out), 0, sizeof *out);
  std::strcpy(out->name, "simulated GPU");
  size_t free_bytes = 0;
  cudaMemGetInfo(&free_bytes, &out->totalGlobalMem);
  out->major = device().capability / 10;
  out->minor = device().capability % 10;
  out->multiProcessorCount = kMultiprocessors;
  out->sharedMemPerBlockOptin = static_cast<size_t>(shared_bytes());
  return cudaSuccess;
}
cudaError_t cudaGetLastError() {
  device().fault.clear();
  return std::exchange(device().error, cudaSuccess);
}
cudaError_t cudaPeekAtLastError() { return device().error; }
const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorInsufficientDriver: return "cudaErrorInsufficientDriver";
    case cudaErrorNoDevice: return "cudaErrorNoDevice";
    case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
    case cudaErrorNotReady: return "cudaErrorNotReady";
    case cudaErrorIllegalState: return "cudaErrorIllegalState";
    case cudaErrorStreamCaptureUnsupported: return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated: return "cudaErrorStreamCaptureInvalidated";
    case cudaErrorStreamCaptureUnmatched: return "cudaErrorStreamCaptureUnmatched";
    case cudaErrorStreamCaptureUnjoined: return "cudaErrorStreamCaptureUnjoined";
    case cudaErrorStreamCaptureIsolation: return "cudaErrorStreamCaptureIsolation";
    case cudaErrorCapturedEvent: return "cudaErrorCapturedEvent";
    default: return "cudaErrorUnknown";
  }
}
const char* cudaGetErrorString(cudaError_t error) {
  if (error == cudaErrorLaunchFailure && !device().fault.empty()) return device().fault.c_str();
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorInsufficientDriver: return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorLaunchFailure: return "unspecified launch failure";
    case cudaErrorNotReady: return "device not ready";
    case cudaErrorIllegalState: return "the operation cannot be performed in the present state";
    case cudaErrorStreamCaptureUnsupported: return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated: return "operation failed due to a previous error during capture";
    case cudaErrorStreamCaptureUnmatched: return "capture was not ended in the same stream as it began";
    case cudaErrorStreamCaptureUnjoined: return "capturing stream has unjoined work";
    case cudaErrorStreamCaptureIsolation: return "dependency created on uncaptured work in another stream";
    case cudaErrorCapturedEvent: return "operation not permitted on an event last recorded in a capturing stream";
    default: return "unknown error";
  }
}
cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute which, int value) {
  if (which != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value < 0 || value > shared_bytes()) return tell(cudaErrorInvalidValue);
  device().dynamic_shared[function] = static_cast<size_t>(value);
  return cudaSuccess;
}
// As far as launch shapes ask for them.
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int) {
  switch (which) {
    case cudaDevAttrMultiProcessorCount: *value = kMultiprocessors; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = shared_bytes(); break;
    case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
    case cudaDevAttrWarpSize: *value = 32; break;
    case cudaDevAttrComputeCapabilityMajor: *value = device().capability / 10; break;
    case cudaDevAttrComputeCapabilityMinor: *value = device().capability % 10; break;
    default: return tell(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

}  // extern "C"
