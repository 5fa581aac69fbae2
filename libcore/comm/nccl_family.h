// All NCCL communicators that were split from one. They fail together: a stream that waits for one of them, through
// whatever other streams, goes on only when that one is aborted.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "libcore/comm/comm.h"
#include "libcore/comm/nccl_abort.h"
#include "libcore/comm/nccl_backend.h"

namespace rw {

class NcclChannel;

class NcclFamily {
 public:
  NcclFamily();
  ~NcclFamily();
  NcclFamily(const NcclFamily&) = delete;
  NcclFamily& operator=(const NcclFamily&) = delete;

  // What a lookout's thread shares with the rank's own. Recursive: in the simulator both are one thread.
  std::recursive_mutex& mutex() { return mutex_; }

  void enter(NcclChannel* channel);
  void leave(NcclChannel* channel);
  void enter(Comm* host);
  void leave(Comm* host);

  bool has_failed() const { return has_failed_.load(); }
  // Throws when the family has failed, saying the same each time. The rank's own thread alone calls it: the first time
  // it asks the peers.
  void check();
  // Takes all communicators from their channels, to be aborted beside; what was told first stays. Waits for nothing:
  // streams go on soon after. `at` is asked for who did not arrive when `what` does not say who is to blame.
  void fail(const std::string& what, NcclChannel* at) noexcept;
  // Of a family that failed: waits until its communicators are gone, a few seconds after fail() at the latest; whether
  // they are. Not under the lock.
  bool settle() noexcept { return aborter_.settle(); }

 private:
  void look() noexcept;
  void look_around();

  std::recursive_mutex mutex_;
  std::vector<NcclChannel*> channels_;
  std::vector<Comm*> hosts_;
  std::atomic<bool> has_failed_{false};
  std::string failure_;
  NcclChannel* failed_at_ = nullptr;  // still to be asked
  NcclAborter aborter_;
  nccl::Lookout lookout_;  // last: it looks at all of the above
};

}  // namespace rw
