// Memory that is planned in an arena and that collectives can work on in place.
#pragma once
#include <cstdint>

#include "libcore/comm/comm.h"
#include "libcore/device/arena.h"

namespace rw {

// Collective over comm. From the arena where the communicator has one rank, from comm.allocate() otherwise; counted in
// the arena either way. `data` lives as long as both this and the arena.
struct SharedMemory {
  void* data = nullptr;
  SharedBuffer buffer;
  float* floats() const { return static_cast<float*>(data); }
};
struct SharedWish {
  int64_t bytes;
  MemoryOwner owner;
  int threads = 1;
};
SharedMemory take_shared(Comm& comm, Arena& arena, const SharedWish& wish);

}  // namespace rw
