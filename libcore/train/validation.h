// Validation loss over whole held-out spans, shared among the ranks.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "libcore/comm/comm.h"
#include "libcore/data/data_order.h"
#include "libcore/train/step.h"

namespace rw {

struct ValidationResult {
  double loss = 0;           // nats per token
  double loss_per_byte = 0;  // nats per byte of text, the measure that does not depend on the tokenizer; 0 when unknown
  int64_t tokens = 0;
};

class Validation {
 public:
  struct Part {
    std::shared_ptr<const TokenFile> file;
    int64_t begin, end;
  };
  Validation(std::vector<Part> parts, int64_t seq_len, int64_t micro_batch);
  bool empty() const { return spans_.empty(); }
  // Collective over the step's mesh: samples in turn to the data-parallel indices.
  ValidationResult run(TrainStep& step) const;

 private:
  std::vector<DataSpan> spans_;
  int64_t seq_len_, micro_batch_, bytes_;
};

}  // namespace rw
