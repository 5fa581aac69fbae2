// The MPI library's own blocking collectives over all ranks of the job, to hold ours against.
#pragma once
#include <cstdint>

#include "kernels/dtype.h"
#include "libcore/bench/comm/comm_table.h"

namespace rw {

struct MpiPeerCall {
  BenchOp op = BenchOp::all_reduce;
  void* data = nullptr;        // in place, but of all_gather when part is given
  const void* part = nullptr;  // all_gather out of place: this rank's part
  int64_t n = 0;               // elements: all, or per rank of reduce_scatter and all_gather
  DType t = DType::f32;
  int peer = -1;  // send_recv: one rank sends and then receives, the other the reverse
  bool sends_first = false;
};
// f32, f64 and i64; reductions of other types are not the library's.
bool mpi_peer_can(BenchOp op, DType t);
// Under a launcher, after make_world_comm. Waits without a timeout. reduce_scatter leaves this rank's part at the front
// of data.
void run_mpi_peer(const MpiPeerCall& call);

}  // namespace rw
