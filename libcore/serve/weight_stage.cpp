#include "libcore/serve/weight_stage.h"

#include <algorithm>

namespace rw {
namespace {

// Large enough that a copy's start does not show, small enough to be found in page-locked memory anywhere.
constexpr int64_t kPieceFloats = 16 << 20;

// The rows of a box that fit into a piece; at least one.
int64_t rows_of_piece(const Box& box) {
  const int64_t row = box.extent.empty() || box.extent[0] == 0 ? 1 : box.size() / box.extent[0];
  return std::max<int64_t>(1, kPieceFloats / std::max<int64_t>(1, row));
}

}  // namespace

WeightStage::WeightStage(const TensorSource& source, const Exec& exec, DeviceMemory* device)
    : source_(source), exec_(exec), arena_(device) {
  if (device != nullptr) piece_ = arena_.take_host_n<float>(kPieceFloats, MemoryOwner::weights);
}

float* WeightStage::room(int64_t n) { return arena_.take_n<float>(n, MemoryOwner::weights); }

void WeightStage::read(const std::string& name, const Box& box, float* to) {
  if (piece_ == nullptr) {
    source_.read(name, box, DType::f32, to);
    return;
  }
  const int64_t rows = rows_of_piece(box);
  for (int64_t first = 0; first < box.extent[0]; first += rows) {
    Box part = box;
    part.offset[0] += first;
    part.extent[0] = std::min(rows, box.extent[0] - first);
    const int64_t n = part.size();
    if (n == 0) continue;
    source_.read(name, part, DType::f32, piece_);
    exec_.ops.upload({.device = to, .host = piece_, .bytes = n * static_cast<int64_t>(sizeof(float))}, exec_.stream);
    // The piece is free again once the copy is done, which a read waits for.
    float last = 0;
    exec_.ops.read({.host = &last, .device = to + n - 1, .n = 1, .t = DType::f32}, exec_.stream);
    to += n;
  }
}

}  // namespace rw
