// The server's forward pass, run on the meta device: the ops and collectives of a step, as `dserve` would call them.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "kernels/op_log.h"
#include "libcore/comm/watch.h"
#include "libcore/serve/model_runner.h"

namespace rw {

// What one rank of `tp` does.
struct ForwardWork {
  std::vector<OpCall> ops;
  std::map<CommKind, CommCount> comm;
};

class ServeForward {
 public:
  // Of a model that has only so many layers, each like the others; the runner's backend gives sizes.
  ServeForward(const RunnerSpec& runner, int64_t tp, int64_t layers);
  ~ServeForward();
  // New tokens of a sequence, and its context, these included.
  struct Span {
    int64_t rows, context;
  };
  ForwardWork run(const std::vector<Span>& sequences);
  // After a run: the logits of so many rows.
  ForwardWork logits(int64_t rows);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rw
