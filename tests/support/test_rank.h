// A rank of the training tests: the device that it computes on, and the world that it trains in.
#pragma once
#include <memory>
#include <string>

#include "libcore/comm/nccl_comm.h"
#include "libcore/device/device.h"
#include "libcore/model/exec.h"
#include "libcore/tensor/source.h"

namespace rw {

class TestRank {
 public:
  // device: "cpu", or "cuda" in a build that has one. Collective over host, which outlives this.
  TestRank(Comm& host, const std::string& device)
      : device_(open_device({.device = device, .local_rank = host.rank(), .threads = 1})),
        device_world_(device_comm(host, *device_)),
        world_(device_world_ != nullptr ? *device_world_ : host) {}
  Comm& world() const { return world_; }
  Device& device() const { return *device_; }
  DeviceMemory* memory() const { return device_->memory(); }
  Exec exec(DType t) const { return {.ops = device_->ops(), .stream = device_->stream(), .t = t}; }
  CopyPiece copy() const {
    if (memory() == nullptr) return nullptr;
    return [memory = memory()](char* dst, const char* src, int64_t bytes) { memory->copy_to_host(dst, src, bytes); };
  }

 private:
  std::unique_ptr<Device> device_;
  std::unique_ptr<Comm> device_world_;
  Comm& world_;
};

}  // namespace rw
