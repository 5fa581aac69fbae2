// Which file operation goes wrong, and how. Settings, all from the environment:
//
//   RANKWRIGHT_FAULT_DIR     absolute real path; operations on what lies under it are looked at, all others left alone
//   RANKWRIGHT_FAULT         "action=eio op=write at=3 sticky=1 path=.h5 rank=1": words in any order
//     action  eio, enospc    the operation fails with this error
//             short          a write takes half of what it is given
//             flip           one bit of what a write is given changes on its way to the disk: bit= of all its bits,
//                            counted round and round
//             kill           SIGKILL to this process instead of the operation
//             kill-half      the same after half of a write
//             kill-job       SIGKILL to the parent (mpirun) and to this process
//             slow           a write takes ms= milliseconds per MiB (at least one of them), a sync ms=
//             list           nothing but a line in the file of what fired
//     op      a kind of op_record.h, or any (the default)
//     at      the first operation (of that kind, on such a path, in this process) it happens to; 1 when not given
//     sticky  1: to all from there on; slow, short and list are sticky by themselves
//     path    only where the path holds this text
//     rank    only in this rank of an MPI job
//   RANKWRIGHT_FAULT_FIRED   a file that gets a line "action op path" for every operation it happened to
//   RANKWRIGHT_FAULT_RECORD  a file that gets every operation that succeeded (op_record.h)
#pragma once
#include <atomic>
#include <cstdint>
#include <string>

#include "tests/faults/op_record.h"

namespace faults {

enum class Action { none, eio, enospc, short_write, flip, kill, kill_half, kill_job, slow, list };

class FaultPlan {
 public:
  FaultPlan();
  bool watches(const std::string& path) const;
  // What shall happen to this operation; `bytes` is what a write is given. Counts it. Sleeps for slow, kills for kill
  // and kill_job: these do not come back.
  Action next(Op op, const std::string& path, int64_t bytes);
  int64_t bit() const { return bit_; }
  const std::string& record_file() const { return record_; }
  [[noreturn]] static void die();

 private:
  void tell(Op op, const std::string& path) const;

  std::string dir_, record_, fired_, action_name_ = "none", op_ = "any", path_part_;
  Action action_ = Action::none;
  int64_t at_ = 1, ms_ = 0, bit_ = 0;
  bool sticky_ = false;
  std::atomic<int64_t> n_matching_ = 0;
};

}  // namespace faults
