#include "libcore/model/tensor_parallel.h"

#include <algorithm>
#include <cstddef>

namespace rw {
namespace {

std::byte* row(void* base, int64_t r, int64_t width, DType t) {
  return static_cast<std::byte*>(base) + r * width * dtype_bytes(t);
}

bool needed(TpBuffer buffer, const TensorParallel::Plan& plan) {
  switch (buffer) {
    case TpBuffer::branch: return true;
    case TpBuffer::gathered: return plan.sequence_parallel;
    case TpBuffer::d_mlp_norm:
    case TpBuffer::d_attn_norm: return plan.training;
    case TpBuffer::d_out:
    case TpBuffer::d_mid: return plan.training && plan.sequence_parallel;
    case TpBuffer::n_buffers: break;
  }
  return false;
}

}  // namespace

TensorParallel::TensorParallel(const Plan& plan, const Exec& exec, Comm& comm, Arena& arena)
    : plan_(plan), t_(exec.t), comm_(comm) {
  const MemoryOwner owner = comm.size() == 1 ? MemoryOwner::activations : MemoryOwner::comm;
  for (size_t b = 0; b < buffers_.size(); ++b)
    if (needed(static_cast<TpBuffer>(b), plan))
      buffers_[b] = take_shared(
          comm, arena,
          {.bytes = plan.max_rows * plan.width * dtype_bytes(t_), .owner = owner, .threads = exec.stream.threads});
}

LocalRows TensorParallel::local(int64_t rows) const {
  if (!plan_.sequence_parallel) return {.first = 0, .rows = rows};
  const int64_t each = (rows + comm_.size() - 1) / comm_.size();
  const int64_t first = std::min(rows, each * comm_.rank());
  return {.first = first, .rows = std::min(rows, first + each) - first};
}

const std::vector<int64_t>& TensorParallel::row_cuts(int64_t rows) const {
  const int64_t each = (rows + comm_.size() - 1) / comm_.size();
  cuts_.clear();
  for (int r = 0; r <= comm_.size(); ++r) cuts_.push_back(std::min(rows, each * r) * plan_.width);
  return cuts_;
}

const void* TensorParallel::gather(const void* x, int64_t rows, TpBuffer into) const {
  if (!plan_.sequence_parallel) return x;
  comm_.all_gather(x, partial(into), row_cuts(rows), t_);
  return partial(into);
}

void* TensorParallel::reduce(TpBuffer buffer, int64_t rows) const {
  if (!plan_.sequence_parallel) {
    comm_.all_reduce(partial(buffer), rows * plan_.width, t_, ReduceOp::sum);
    return partial(buffer);
  }
  comm_.reduce_scatter(partial(buffer), row_cuts(rows), t_);
  return row(partial(buffer), local(rows).first, plan_.width, t_);
}

}  // namespace rw
