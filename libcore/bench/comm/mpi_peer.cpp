#include "libcore/bench/comm/mpi_peer.h"

#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include "libcore/base/check.h"
#include "libcore/base/error.h"

namespace rw {
namespace {

MPI_Datatype type_of(DType t) {
  switch (t) {
    case DType::f32: return MPI_FLOAT;
    case DType::f64: return MPI_DOUBLE;
    case DType::i64: return MPI_INT64_T;
    default: return dtype_bytes(t) == 2 ? MPI_UINT16_T : MPI_BYTE;
  }
}

void expect(int code) {
  if (code != MPI_SUCCESS) fail(ErrorKind::runtime, "the MPI library's own collective failed with code {}", code);
}

}  // namespace

bool mpi_peer_can(BenchOp op, DType t) {
  const bool reduces = op == BenchOp::all_reduce || op == BenchOp::reduce_scatter;
  return !reduces || t == DType::f32 || t == DType::f64 || t == DType::i64;
}

void run_mpi_peer(const MpiPeerCall& c) {
  CHECK(mpi_peer_can(c.op, c.t) && c.n <= INT32_MAX, "%s of %lld %s", bench_op_name(c.op), static_cast<long long>(c.n),
        dtype_name(c.t));
  const int n = static_cast<int>(c.n);
  const MPI_Datatype type = type_of(c.t);
  switch (c.op) {
    case BenchOp::all_reduce: return expect(MPI_Allreduce(MPI_IN_PLACE, c.data, n, type, MPI_SUM, MPI_COMM_WORLD));
    case BenchOp::reduce_scatter:
      return expect(MPI_Reduce_scatter_block(MPI_IN_PLACE, c.data, n, type, MPI_SUM, MPI_COMM_WORLD));
    case BenchOp::all_gather:
      return expect(MPI_Allgather(c.part != nullptr ? c.part : MPI_IN_PLACE, c.part != nullptr ? n : 0, type, c.data, n,
                                  type, MPI_COMM_WORLD));
    case BenchOp::broadcast: return expect(MPI_Bcast(c.data, n, type, 0, MPI_COMM_WORLD));
    case BenchOp::barrier: return expect(MPI_Barrier(MPI_COMM_WORLD));
    case BenchOp::send_recv:
      if (c.sends_first) expect(MPI_Send(c.data, n, type, c.peer, 0, MPI_COMM_WORLD));
      expect(MPI_Recv(c.data, n, type, c.peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      if (!c.sends_first) expect(MPI_Send(c.data, n, type, c.peer, 0, MPI_COMM_WORLD));
      return;
  }
}

}  // namespace rw
