#include "libcore/train/host_tensors.h"

#include <algorithm>

namespace rw {
namespace {

constexpr int64_t kPieceFloats = int64_t{1} << 22;  // on their way to a device at a time

}  // namespace

const float* HostTensors::view(const float* at, int64_t n, std::vector<float>& room) const {
  if (device_ == nullptr) return at;
  room.resize(static_cast<size_t>(n));
  exec_.ops.read({.host = room.data(), .device = at, .n = n, .t = DType::f32}, exec_.stream);
  return room.data();
}

void HostTensors::write(float* at, const float* host, int64_t n) const {
  if (n == 0) return;
  exec_.ops.upload({.device = at, .host = host, .bytes = n * static_cast<int64_t>(sizeof(float))}, exec_.stream);
  if (device_ == nullptr) return;
  float last = 0;  // reading it waits until the host's bytes are no longer needed
  exec_.ops.read({.host = &last, .device = at + n - 1, .n = 1, .t = DType::f32}, exec_.stream);
}

void HostTensors::fill(float* at, int64_t rows, int64_t row, const Make& make) const {
  if (device_ == nullptr) return make(at, {.first = 0, .rows = rows});
  const int64_t at_once = std::max<int64_t>(1, kPieceFloats / std::max<int64_t>(1, row));
  std::vector<float> piece;
  for (int64_t first = 0; first < rows; first += at_once) {
    const int64_t n = std::min(at_once, rows - first);
    piece.resize(static_cast<size_t>(n * row));
    make(piece.data(), {.first = first, .rows = n});
    write(at + first * row, piece.data(), n * row);
  }
}

}  // namespace rw
