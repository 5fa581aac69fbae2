// What NCCL (nccl_real.cpp) and its stand-in in the simulator (nccl_simt.cpp) ask of their caller beyond nccl.h.
#pragma once
#include <functional>
#include <memory>

#include "libcore/comm/comm.h"

namespace rw::nccl {

const char* backend_name();  // "nccl", "nccl/simt"

// Collective over host, before its ranks make communicators, one per color with ranks in the order of their keys: the
// stand-in takes a host communicator.
void lend_host(Comm& host, int color, int key);

// Lets those streams go on that go on only when the host does something. Called wherever the host waits for peers.
void move_streams();

// While it lives, `look` is called several times a second, on a thread of its own that has the caller's device, or
// wherever a thread waits for work of communicators that were made by this one.
class Lookout {
 public:
  explicit Lookout(std::function<void()> look);
  ~Lookout();
  Lookout(const Lookout&) = delete;
  Lookout& operator=(const Lookout&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rw::nccl
