// Where weights pass through on their way from a file to where ops read them: on the CPU nowhere, to a device through
// page-locked memory, a piece at a time.
#pragma once
#include <cstdint>
#include <string>

#include "libcore/device/arena.h"
#include "libcore/model/exec.h"
#include "libcore/tensor/source.h"

namespace rw {

class WeightStage {
 public:
  // device: null, or what `exec` computes in.
  WeightStage(const TensorSource& source, const Exec& exec, DeviceMemory* device);
  // f32, row-major, as source.read() gives it. `to` is where ops read.
  void read(const std::string& name, const Box& box, float* to);
  // Room for `n` floats where ops read them, as long as this lives.
  float* room(int64_t n);

 private:
  const TensorSource& source_;
  const Exec& exec_;
  Arena arena_;
  float* piece_ = nullptr;  // null: read where they go
};

}  // namespace rw
