// Data-parallel gradients: a flat buffer that the ranks share; a group starts to be reduced as soon as the last
// micro-batch has finished it, while backward goes on.
#pragma once
#include <vector>

#include "libcore/comm/comm.h"
#include "libcore/model/grads.h"
#include "libcore/model/param_layout.h"

namespace rw {

class DataParallelSink final : public GradSink {
 public:
  DataParallelSink(const ParamLayout& layout, Comm& dp);
  // Before each micro-batch.
  void start(int64_t micro_batch, int64_t n_micro_batches);
  GradPlace open(int64_t group) override;
  void done(int64_t group) override;
  // Waits until all groups hold the sum over ranks.
  void wait();
  float* grads() { return static_cast<float*>(buffer_.data); }
  int64_t bytes() const { return buffer_.bytes; }

 private:
  const ParamLayout& layout_;
  Comm& dp_;
  SharedBuffer buffer_;
  bool first_ = true, last_ = true;
  std::vector<Request> requests_;
};

}  // namespace rw
