#include "libcore/device/open_device.h"

#include <charconv>
#include <optional>
#include <string>
#include <string_view>

#include "libcore/base/error.h"

namespace rw {
namespace {

// Of "cuda:N"; -2: that is no number.
int index_of(std::string_view text) {
  int index = -2;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
  return error == std::errc() && end == text.data() + text.size() && index >= 0 ? index : -2;
}

// The GPU's number; -1: the rank's own; none: the CPU. Error{usage} for another name.
std::optional<int> cuda_index(const std::string& device) {
  constexpr std::string_view kCuda = "cuda", kNumbered = "cuda:";
  if (device == "cpu") return std::nullopt;
  if (device == kCuda) return -1;
  if (device.starts_with(kNumbered))
    if (const int index = index_of(std::string_view(device).substr(kNumbered.size())); index >= 0) return index;
  fail(ErrorKind::usage, "--device: expected cpu, cuda or cuda:N, found '{}'", device);
}

}  // namespace

void check_device_name(const std::string& device) { cuda_index(device); }

void check_device(const DeviceWish& wish) {
  if (const auto index = cuda_index(wish.device)) check_cuda_device(wish, *index);
}

std::unique_ptr<Device> open_device(const DeviceWish& wish) {
  if (const auto index = cuda_index(wish.device)) return open_cuda_device(wish, *index);
  return open_cpu_device(wish.threads);
}

void check_head_size(const Device& device, int64_t head_size) {
  if (head_size > device.most_head_size())
    fail(ErrorKind::usage,
         "{}: its attention takes heads of up to {} elements in training, this model's have {}; use --device cpu, or a "
         "model with smaller heads",
         device.name(), device.most_head_size(), head_size);
}

}  // namespace rw
