// The host as a device: ops run where they are called, in the host's memory.
#include <stdexcept>
#include <vector>

#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/device/open_device.h"

namespace rw {
namespace {

class CpuClock final : public DeviceClock {
 public:
  int mark() override {
    marks_.push_back(now_s());
    return static_cast<int>(marks_.size()) - 1;
  }
  double seconds(int from, int to) override {
    return marks_.at(static_cast<size_t>(to)) - marks_.at(static_cast<size_t>(from));
  }
  void clear() override { marks_.clear(); }

 private:
  std::vector<double> marks_;
};

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(int threads) : ops_(this_cpu_ops()), threads_(threads) {}
  DeviceKind kind() const override { return DeviceKind::cpu; }
  std::string name() const override { return ops_.name; }
  const Ops& ops() const override { return ops_; }
  Stream stream() const override { return {.threads = threads_}; }
  DeviceMemory* memory() override { return nullptr; }
  void wait() override {}
  void bind_thread() override {}
  std::unique_ptr<RecordedOps> record(const std::function<void()>& ops) override {
    ops();
    return nullptr;
  }
  std::unique_ptr<DeviceClock> make_clock() override { return std::make_unique<CpuClock>(); }

 private:
  const Ops& ops_;
  int threads_;
};

}  // namespace

const Ops& this_cpu_ops() {
  try {
    return cpu_ops();
  } catch (const std::invalid_argument& e) {
    fail(ErrorKind::usage, "{}", e.what());
  }
}

std::unique_ptr<Device> open_cpu_device(int threads) { return std::make_unique<CpuDevice>(threads); }

}  // namespace rw
