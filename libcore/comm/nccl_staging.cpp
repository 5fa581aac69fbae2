#include "libcore/comm/nccl_staging.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "libcore/base/error.h"
#include "libcore/base/units.h"
#include "libcore/comm/nccl_backend.h"
#include "libcore/comm/nccl_check.h"
#include "libcore/comm/patience.h"

namespace rw {

NcclStaging::~NcclStaging() {
  for (const Piece& piece : spare_) {
    if (piece.last_read != nullptr) {
      cudaEventSynchronize(static_cast<cudaEvent_t>(piece.last_read));
      events_.give(piece.last_read);
    }
    memory_.release_host(piece.data);
  }
}

NcclStaging::Piece NcclStaging::take(int64_t bytes) {
  for (size_t i = 0; i < spare_.size(); ++i) {
    Piece piece = spare_[i];
    if (piece.bytes < bytes || (piece.last_read != nullptr && !event_reached(piece.last_read))) continue;
    spare_.erase(spare_.begin() + static_cast<std::ptrdiff_t>(i));
    if (piece.last_read != nullptr) events_.give(std::exchange(piece.last_read, nullptr));
    return piece;
  }
  void* data = memory_.allocate_host(bytes);
  if (data == nullptr)
    fail(ErrorKind::runtime, "no page-locked memory of {} for a message; {} has none left to lock",
         format_bytes(static_cast<double>(bytes)), memory_.name());
  return {.data = data, .bytes = bytes};
}

NcclStaging::Piece NcclStaging::fill(const void* device, int64_t bytes) {
  const Piece piece = take(bytes);
  const auto stream = static_cast<cudaStream_t>(stream_);
  RW_EXPECT_CUDA(cudaMemcpyAsync(piece.data, device, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, stream));
  RW_EXPECT_CUDA(cudaStreamSynchronize(stream));
  return piece;
}

void NcclStaging::empty(Piece piece, void* device, int64_t bytes) {
  const auto stream = static_cast<cudaStream_t>(stream_);
  RW_EXPECT_CUDA(cudaMemcpyAsync(device, piece.data, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream));
  piece.last_read = events_.take();
  RW_EXPECT_CUDA(cudaEventRecord(static_cast<cudaEvent_t>(piece.last_read), stream));
  give(piece);
}

}  // namespace rw
