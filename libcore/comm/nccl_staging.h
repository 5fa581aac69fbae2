// Page-locked memory for messages that go through the host: lent piece by piece, and lent again when the device is
// through with it.
#pragma once
#include <cstdint>
#include <vector>

#include "libcore/comm/nccl_events.h"
#include "libcore/device/device_memory.h"

namespace rw {

class NcclStaging {
 public:
  struct Piece {
    void* data = nullptr;
    int64_t bytes = 0;
    void* last_read = nullptr;  // event; null: the device reads nothing of it
  };

  // `stream` is the one that copies.
  NcclStaging(DeviceMemory& memory, void* stream) : memory_(memory), stream_(stream) {}
  ~NcclStaging();
  NcclStaging(const NcclStaging&) = delete;
  NcclStaging& operator=(const NcclStaging&) = delete;

  // Error{runtime} when there is no memory for it.
  Piece take(int64_t bytes);
  // The memory of a send, filled: waits for the stream.
  Piece fill(const void* device, int64_t bytes);
  void give(const Piece& piece) { spare_.push_back(piece); }
  // Copies a message that came to the device, on the stream, and takes the piece back.
  void empty(Piece piece, void* device, int64_t bytes);

 private:
  DeviceMemory& memory_;
  void* stream_;
  EventPool events_{EventPool::Clock::none};
  std::vector<Piece> spare_;
};

}  // namespace rw
