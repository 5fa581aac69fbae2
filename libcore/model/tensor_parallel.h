// What the ranks of a tensor-parallel group exchange inside a layer. The residual stream (T, C) is whole on every rank,
// or, with sequence parallelism (Korthikanti et al. 2022), each rank has its rows: then the norms run on those, the
// linear layers gather the rows before and scatter the sums after. With one rank everything here is the identity.
#pragma once
#include <array>
#include <cstdint>

#include "libcore/comm/take_shared.h"
#include "libcore/model/exec.h"
#include "libcore/spec/tensor_parallel.h"

namespace rw {

struct LocalRows {
  int64_t first, rows;
};

// The buffers that collectives work on, one use each at a time.
enum class TpBuffer : uint8_t { branch, gathered, d_mlp_norm, d_attn_norm, d_out, d_mid, n_buffers };

class TensorParallel {
 public:
  struct Plan {
    bool sequence_parallel = false;
    int64_t max_rows = 0, width = 0;  // T, C
    bool training = true;
  };
  // Collective over comm. exec gives the element type; comm outlives this.
  TensorParallel(const Plan& plan, const Exec& exec, Comm& comm, Arena& arena);

  TpPlace place() const { return {.size = comm_.size(), .rank = comm_.rank()}; }
  Comm& comm() const { return comm_; }
  // This rank's rows of a residual stream of `rows` rows.
  LocalRows local(int64_t rows) const;
  int64_t max_local_rows() const { return local(plan_.max_rows).rows; }

  // (rows, C) of all ranks from each rank's own rows: x itself without sequence parallelism.
  const void* gather(const void* x, int64_t rows, TpBuffer into) const;
  // Where a product whose sum over ranks is wanted is written: (rows, C).
  void* partial(TpBuffer buffer) const { return buffers_[static_cast<size_t>(buffer)].data; }
  // Sums partial(buffer) over ranks; returns this rank's rows of it.
  void* reduce(TpBuffer buffer, int64_t rows) const;

 private:
  // Element offsets of the ranks' rows.
  const std::vector<int64_t>& row_cuts(int64_t rows) const;

  Plan plan_;
  DType t_;
  Comm& comm_;
  std::array<SharedMemory, static_cast<size_t>(TpBuffer::n_buffers)> buffers_;
  mutable std::vector<int64_t> cuts_;
};

}  // namespace rw
