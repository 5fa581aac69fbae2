// Ranks with a device each, in the simulator: threads, or processes.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "libcore/comm/comm.h"
#include "libcore/device/device.h"

namespace rw::checks {

std::unique_ptr<Device> open_test_device();

// An array on the device; what the host has of it is a copy.
template <typename T>
class DeviceArray {
 public:
  DeviceArray(Device& device, const std::vector<T>& values) : device_(device), n_(std::ssize(values)) {
    data_ = static_cast<T*>(device.memory()->allocate(bytes() + 1));
    put(values);
  }
  ~DeviceArray() { device_.memory()->release(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() { return data_; }
  int64_t size() const { return n_; }
  int64_t bytes() const { return n_ * static_cast<int64_t>(sizeof(T)); }
  void put(const std::vector<T>& values) {
    device_.ops().upload({.device = data_, .host = values.data(), .bytes = bytes()}, device_.stream());
    device_.wait();
  }
  // Of what the device's stream holds now.
  std::vector<T> get() {
    std::vector<T> values(static_cast<size_t>(n_));
    device_.wait();
    device_.memory()->copy_to_host(values.data(), data_, bytes());
    return values;
  }

 private:
  Device& device_;
  int64_t n_;
  T* data_;
};

// A communicator that does on device memory what it is asked to do on host memory: operands go there and back.
// allocate() gives host memory. With `prepared`, messages between any two ranks go the fast way.
enum class Messages { staged, prepared };
std::unique_ptr<Comm> on_device(std::unique_ptr<Comm> comm, Device& device, Messages messages);
// The same on host memory: allocate() gives that.
std::unique_ptr<Comm> on_host(std::unique_ptr<Comm> comm);

// Each thread with its rank of an NCCL communicator.
void run_device_ranks(int n, const std::function<void(Comm& comm, Device& device)>& body);

}  // namespace rw::checks
