// The prefetches that go with a product of two panels (MultiplyPanels::ahead, c), spread over its steps: a burst of
// them would stall the loads. Compiled once per instruction set (see simd.h).
#pragma once
#include "kernels/cpu/gemm_panels.h"
#include "kernels/cpu/simd.h"

namespace rw::RW_ISA {

class Ahead {
 public:
  RW_INLINE Ahead(const MultiplyPanels& p, int64_t steps)
      : b_(p.ahead), c_(p.c), stride_(p.c_stride), row_bytes_(p.c_row_bytes), rows_(p.c ? p.rows : 0) {
    lines_ = steps ? (p.ahead_bytes / 64 + steps - 1) / steps : 0;
    rows_per_step_ = steps ? (rows_ + steps - 1) / steps : 0;
  }
  // A panel of B goes to L2, from where the next panel of A will pull it; rows of c (at most two lines) to L1.
  RW_INLINE void step() {
    for (int64_t i = 0; i < lines_; ++i, b_ += 64) __builtin_prefetch(b_, 0, 2);
    for (int64_t i = 0; i < rows_per_step_ && rows_ > 0; ++i, --rows_, c_ += stride_) {
      __builtin_prefetch(c_, 0, 3);
      __builtin_prefetch(c_ + row_bytes_ - 1, 0, 3);
    }
  }

 private:
  const char *b_, *c_;
  int64_t stride_, row_bytes_, rows_, lines_, rows_per_step_;
};

}  // namespace rw::RW_ISA
