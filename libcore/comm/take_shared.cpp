#include "libcore/comm/take_shared.h"

namespace rw {

SharedMemory take_shared(Comm& comm, Arena& arena, const SharedWish& wish) {
  SharedMemory memory;
  if (comm.size() == 1) {
    memory.data = arena.take(wish.bytes, wish.owner, wish.threads);
    return memory;
  }
  memory.buffer = comm.allocate(wish.bytes);
  memory.data = memory.buffer.data;
  arena.adopt(wish.bytes, wish.owner);
  return memory;
}

}  // namespace rw
