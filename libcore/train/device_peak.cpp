#include "libcore/train/device_peak.h"

#include <algorithm>

#include "libcore/base/check.h"
#include "libcore/base/error.h"
#include "libcore/base/units.h"

namespace rw {
namespace {

constexpr int64_t kSmallest = 128, kLargest = 8192;
// A product of less is mostly its launch.
constexpr double kLongEnoughS = 1e-3;

// A block that is given back.
class Lent {
 public:
  Lent(DeviceMemory& memory, int64_t bytes) : memory_(memory), data_(memory.allocate(std::max<int64_t>(bytes, 1))) {
    if (data_ == nullptr)
      fail(ErrorKind::runtime,
           "out of memory on {}: measuring its peak asked for {}, {} are available; give the peak with --peak-flops",
           memory.name(), format_bytes(static_cast<double>(bytes)),
           format_bytes(static_cast<double>(memory.free_bytes())));
  }
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;
  ~Lent() { memory_.release(data_); }
  void* data() const { return data_; }

 private:
  DeviceMemory& memory_;
  void* data_;
};

}  // namespace

double measure_device_peak(Device& device, DType t, double seconds) {
  CHECK(device.memory() != nullptr, "the peak of %s is not measured by products", device.name().c_str());
  const std::unique_ptr<DeviceClock> clock = device.make_clock();
  for (int64_t n = kSmallest;; n *= 2) {
    const int64_t bytes = n * n * dtype_bytes(t);
    const Lent a(*device.memory(), bytes), b(*device.memory(), bytes), c(*device.memory(), bytes);
    Gemm product{.c = c.data(), .a = a.data(), .b_packed = b.data(), .m = n, .n = n, .k = n, .t = t, .ct = t};
    const Lent workspace(*device.memory(), device.ops().gemm_workspace(product, device.stream()));
    product.workspace = workspace.data();
    const auto time = [&](int64_t times) {
      clock->clear();
      clock->mark();
      for (int64_t i = 0; i < times; ++i) device.ops().gemm(product, device.stream());
      clock->mark();
      device.wait();
      return clock->seconds(0, 1);
    };
    time(1);  // chooses the library's algorithm
    const double once = time(1);
    if (once < kLongEnoughS && n < kLargest) continue;
    const int64_t times = std::max<int64_t>(1, static_cast<int64_t>(seconds / once));
    const auto size = static_cast<double>(n);
    return 2 * size * size * size * static_cast<double>(times) / time(times);
  }
}

}  // namespace rw
