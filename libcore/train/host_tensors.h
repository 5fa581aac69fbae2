// A rank's tensors as the host sees them, which makes their first values and saves, compares and sums them up. Where
// ops run in the host's memory that is the tensors themselves, on a device a copy.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "libcore/model/exec.h"
#include "libcore/model/param_layout.h"

namespace rw {

class DeviceMemory;

class HostTensors {
 public:
  // `device`: where the tensors lie; null: in the host's memory.
  HostTensors(const Exec& exec, DeviceMemory* device) : exec_(exec), device_(device) {}
  DeviceMemory* device() const { return device_; }
  // The n floats at `at`: there, or copied to `room`. Waits for what the stream does to them.
  const float* view(const float* at, int64_t n, std::vector<float>& room) const;
  // n floats at `at` <- host.
  void write(float* at, const float* host, int64_t n) const;
  // Rows of `row` floats each at `at`: make(host, span) writes the span's rows at `host`. In one piece or in several.
  using Make = std::function<void(float* host, RowSpan span)>;
  void fill(float* at, int64_t rows, int64_t row, const Make& make) const;

 private:
  Exec exec_;
  DeviceMemory* device_;
};

}  // namespace rw
