// Builds without CUDA: every device computes in the host's memory.
#include "libcore/base/check.h"
#include "libcore/comm/nccl_comm.h"

namespace rw {

std::unique_ptr<Comm> make_nccl_comm(Comm&, Device& device) {
  CHECK(false, "this build has no NCCL, and no device needs it: %s", device.name().c_str());
}

std::unique_ptr<Comm> device_comm(Comm&, Device&) { return nullptr; }

}  // namespace rw
