// A device of compute capability 9.0 has products of warpgroups, and they are right; no other has them.
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include "kernels/cuda/table.h"

TEST_CASE("products of warpgroups: where the device has them, their sums are exact") {
  int device = 0, major = 0, minor = 0;
  REQUIRE(cudaGetDevice(&device) == cudaSuccess);
  REQUIRE(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess);
  REQUIRE(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) == cudaSuccess);
  CHECK(rw::cuda::has_warpgroup_products() == (major == 9 && minor == 0));
}
