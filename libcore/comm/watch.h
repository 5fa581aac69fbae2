// What a rank's communicators did: counted always, the last operations kept for the day when one does not come back.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "libcore/comm/comm.h"

namespace rw {

enum class CommKind : uint8_t { all_reduce, reduce_scatter, all_gather, broadcast, send, recv, barrier, n_kinds };
const char* comm_kind_name(CommKind kind);

// bytes: the operation's data (all_reduce, broadcast, send, recv: the buffer; reduce_scatter, all_gather: all parts).
struct CommCount {
  int64_t calls = 0, bytes = 0;
  bool operator==(const CommCount&) const = default;
};

struct CommOp {
  CommKind kind;
  const char* group;  // "tp", "dp"; lives as long as the record
  int64_t sequence;   // of this group's collectives, from 0; messages count apart, per peer and direction
  int64_t bytes;
  int peer;  // of messages, rank in the group; -1
  enum class State : uint8_t { started, done, failed } state;
  double start_s, end_s;  // now_s()
  const char* phase;      // "forward", "backward", "optimizer": static text
  int64_t step, micro_batch;
  bool is_on_device = false;  // the host sees its end late
};

// Who the ranks of a watched communicator are, so that the one that is missing has a name.
struct CommGroup {
  std::vector<int> ranks;          // (size) in the world
  std::vector<std::string> hosts;  // (size)
  int64_t n_collectives = 0;       // started: a rank has arrived at those of lower numbers
};

// One per rank (process or thread); written by that rank alone.
struct CommRecord {
  static constexpr int64_t kKept = 64;
  int64_t rank = 0;
  std::string host;
  // Set by the trainer; stamped on each operation.
  const char* phase = "";
  int64_t step = 0, micro_batch = -1;
  // Counts since the start; by (group, kind).
  std::map<std::pair<std::string, CommKind>, CommCount> counts;
  std::map<std::string, CommGroup> groups;
  // Seconds since the start that communication took from this rank: waiting, and the work done in starts and
  // progress().
  double exposed_s = 0;
  // Seconds from the start of every operation until it was seen to be done, added up: what communication would have
  // cost had nothing been computed meanwhile, and the waiting of ranks that came early. Of those on device memory, what
  // the device's clock says (Comm::take_device_s).
  double total_s = 0;
  std::array<CommOp, kKept> last{};
  int64_t n_ops = 0;                            // last[i % kKept], newest n_ops - 1
  std::function<void(const CommOp&)> on_start;  // when set, called for every operation that is started: for tracing
  std::function<void(const CommOp&)> on_end;    // and when it was seen to be done, or failed
  // The communicators that write here, and their operations under way: while one is waited for, all are moved on.
  std::vector<Comm*> comms;
  int64_t n_open = 0;
  // Operations that the rank waited for, and for which the device waits (nccl_comm.h), not yet seen to be done.
  struct OnDevice {
    Comm* comm;
    Request request;
    int64_t number;  // of the operation, as n_ops counts
    CommOp op;
  };
  std::deque<OnDevice> on_device;
  // Adds to exposed_s what the device stood still in such waits, to total_s what its operations took there. Called
  // where the host has just waited for the device; throws when one of them failed.
  void add_stalls();

  // The kept operations, oldest first, one a line: op, group, sequence, bytes, peer (rank in the group, of messages),
  // state, seconds (so far, when it is under way), phase, step, micro_batch.
  std::string json_lines() const;
};

// A Comm that does as `inner` does and writes to the record under this name;
// split() gives Comms that do not. `group` must outlive the record's use.
std::unique_ptr<Comm> watch(std::unique_ptr<Comm> inner, const char* group, const std::shared_ptr<CommRecord>& record);

// A rank of a communicator that does not exist: operations do nothing and are done at once, allocate() gives addresses
// that must not be touched. It has no groups (split): they are meta communicators of their own.
std::unique_ptr<Comm> make_meta_comm(int rank, int size);

// After a wait failed: writes dir/rank-N.jsonl, a line that says who this rank and its groups are, then json_lines().
// Never throws.
void write_watchdog(const CommRecord& record, const std::filesystem::path& dir);
// From the files of dir: which rank did not arrive at which operation, or what else can be said; "" when nothing can.
// A rank without a file is one that still waits somewhere, or is held, or is gone: it is named when the others wait for
// it. `ranks` is the size of the world.
std::string watchdog_verdict(const std::filesystem::path& dir, int64_t ranks);

}  // namespace rw
