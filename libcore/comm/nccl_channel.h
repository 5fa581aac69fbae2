// One NCCL communicator and the stream on which its operations run, one after the other.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "libcore/comm/comm.h"
#include "libcore/comm/roll_call.h"

namespace rw {

class NcclFamily;

using NcclId = std::array<char, 128>;
NcclId make_nccl_id();

bool is_device_memory(const void* address);
void copy_on_device(void* to, const void* from, int64_t bytes, void* stream);

struct NcclChannelConfig {
  NcclId id;
  int rank = 0;
  std::vector<int> members;  // (size) their ranks in the communicator that this serves
  int64_t number = 0;        // among that one's channels
  std::shared_ptr<NcclFamily> family;
  std::shared_ptr<RollCall> roll_call;
  void* compute = nullptr;  // the device's stream
  double timeout_s = 0;
  int max_ctas = 0;  // of the GPU's that an operation may hold while it waits; 0: as NCCL likes
};

class NcclChannel {
 public:
  // Collective over the members.
  explicit NcclChannel(NcclChannelConfig config);
  // Waits for what is under way; fails the family when an exception is on its way up.
  ~NcclChannel();
  NcclChannel(const NcclChannel&) = delete;
  NcclChannel& operator=(const NcclChannel&) = delete;

  void set_timeout(double seconds);

  // Operations begin when what the compute stream holds now is done. Each returns its number.
  int64_t all_reduce(void* data, int64_t n, DType t, ReduceOp op);
  int64_t reduce_scatter(std::byte* data, Cuts cuts, DType t);
  int64_t all_gather(const void* part, std::byte* data, Cuts cuts, DType t);
  int64_t broadcast(void* data, int64_t bytes, int root);
  int64_t send(const void* data, int64_t bytes, int to);
  int64_t recv(void* data, int64_t bytes, int from);

  // Recorded operations, which go on streams of the recording's own.
  void replay(const std::function<void()>& replay);

  bool done(int64_t number);
  bool did(int64_t number);  // done, and not by being aborted
  // Makes the compute stream wait. True when there may be something to wait for.
  bool join(int64_t number);
  void wait_on_host(int64_t number);
  // That operations took on the channel's stream, those that are done, since the last call; of recorded ones none.
  double take_seconds();

  // Zeroed device memory, registered with the communicator where the library can on all ranks; null when there is none
  // left. `agree` is collective, and says whether all ranks gave it true. The memory may outlive the channel, not the
  // device. Its end waits for the compute stream and the channel's.
  static std::shared_ptr<void> allocate(const std::shared_ptr<NcclChannel>& channel, int64_t bytes,
                                        const std::function<bool(bool)>& agree);

  // For the family, under its lock.
  struct Trouble {
    std::string what;
    bool is_overdue;
  };
  std::optional<Trouble> trouble();
  std::string oldest() const;  // "all_reduce #3 (4.0 MiB, group nccl)" that is, or may be, under way; ""
  // The communicator, an ncclComm_t that is to be aborted; null when it is gone.
  void* give_up() noexcept;
  std::string ask_peers(const std::string& operation);

 private:
  struct State;
  struct Memory;
  std::unique_ptr<State> s_;
};

}  // namespace rw
