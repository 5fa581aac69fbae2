#include "libcore/train/grad_sync.h"

#include "libcore/base/check.h"

namespace rw {

DataParallelSink::DataParallelSink(const ParamLayout& layout, Comm& dp)
    : layout_(layout), dp_(dp), buffer_(dp.allocate(layout.total() * static_cast<int64_t>(sizeof(float)))) {
  requests_.reserve(static_cast<size_t>(layout.n_groups()));
}

void DataParallelSink::start(int64_t micro_batch, int64_t n_micro_batches) {
  first_ = micro_batch == 0;
  last_ = micro_batch + 1 == n_micro_batches;
}

GradPlace DataParallelSink::open(int64_t) {
  return {.base = grads(), .write = first_ ? Write::overwrite : Write::accumulate};
}

void DataParallelSink::done(int64_t group) {
  if (!last_) return;
  const Range range = layout_.group(group);
  CHECK(static_cast<int64_t>(requests_.size()) < layout_.n_groups(), "group %lld reduced twice in a step",
        static_cast<long long>(group));
  requests_.push_back(dp_.all_reduce_start(grads() + range.offset, range.n, DType::f32, ReduceOp::sum));
}

void DataParallelSink::wait() {
  for (const Request& request : requests_) dp_.wait(request);
  requests_.clear();
}

}  // namespace rw
