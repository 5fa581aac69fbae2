// Aborts a family's communicators, on a thread of its own.
//
// ncclCommAbort() blocks, whatever the communicator's config says, until no recorded step is left that holds an
// operation of it (commDestroySync() in NCCL 2.28 polls for that): whoever still holds one must not wait for it. With
// work under way on several, aborting one after the other may never return (PyTorch issues 119797, 150690): all are
// aborted in one group, which NCCL allows since 2.22.
#pragma once
#include <memory>
#include <vector>

namespace rw {

class NcclAborter {
 public:
  // For communicators of the calling thread's device. The thread is made here: a failure needs none then.
  NcclAborter();
  // As settle(). What is not done by then is left to end with the process, and is told.
  ~NcclAborter();
  NcclAborter(const NcclAborter&) = delete;
  NcclAborter& operator=(const NcclAborter&) = delete;

  // Once; each is an ncclComm_t that nobody uses any more. Returns at once: streams go on soon after.
  void start(std::vector<void*> comms) noexcept;
  // Waits until they are gone, until 5 s after start() at the latest: whether they are. True before start().
  bool settle() noexcept;

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the thread, which may be left behind
};

}  // namespace rw
