// One operation on this rank's buffers, ready to run, to be checked and to be timed: what `dbench comm` repeats.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/dtype.h"
#include "libcore/bench/comm/comm_table.h"
#include "libcore/comm/comm.h"
#include "libcore/device/device.h"

namespace rw {

constexpr const char* kPeerWay = "mpi-blocking";  // the MPI library's own blocking call
constexpr const char* kDeviceWay = "device";      // on a GPU's memory, by what its communicator has (NCCL)

struct CommTrial {
  BenchOp op = BenchOp::all_reduce;
  std::string way;
  DType t = DType::f32;
  int64_t bytes = 0;  // 0 of a barrier
  bool in_place = true;
  std::byte* data = nullptr;  // (bytes)
  std::byte* part = nullptr;  // (bytes / ranks) of all_gather out of place
  Device* device = nullptr;   // whose memory data and part are, with 3 bytes to spare; null: the host's
};

// Of an operation whose ranks have parts of the buffer.
constexpr bool has_parts(BenchOp op) { return op == BenchOp::reduce_scatter || op == BenchOp::all_gather; }

// Collective.
void run_trial(Comm& comm, const CommTrial& trial);
// Collective. One run on test data; the elements that are not the exact result, of all ranks; -1 of a barrier.
int64_t count_wrong(Comm& comm, const CommTrial& trial);

struct TrialBlock {
  int64_t samples = 1, warmup = 0;
  int64_t calls = 1;     // of the operation in a sample
  bool rewrite = false;  // the buffer before each sample
};
// On a device the calls of a sample are put there one behind the other and then waited for.
// Collective. Microseconds of a call, this rank's, a barrier before each sample; of send_recv half the round trip.
std::vector<double> time_block(Comm& comm, const CommTrial& trial, const TrialBlock& block);

}  // namespace rw
