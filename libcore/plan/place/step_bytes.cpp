#include "libcore/plan/place/step_bytes.h"

#include <algorithm>

namespace rw {
namespace {

double all_reduced(const CommWork& c) {
  const double share = c.kind == CommKind::all_reduce ? 1 : 0.5;
  return share * static_cast<double>(c.calls) * c.bytes;
}

}  // namespace

StepBytes step_bytes(const WorkTerms& terms, int64_t ranks_per_node) {
  const Layout& l = terms.layout;
  StepBytes most{.tp = 0, .shard = 0, .replica = 0, .pp = 0};
  const WorkParts parts = work_parts(terms);
  for (const int64_t stage : {int64_t{0}, l.pp - 1}) {
    StepBytes s{.tp = 0, .shard = 0, .replica = 0, .pp = 0};
    for (const CommWork& c : stage_work(parts, l, stage).comm)
      if (c.group == "tp") s.tp += all_reduced(c);
    for (const CommWork& c : dp_traffic(terms.model, l, stage, ranks_per_node)) {
      if (c.group == "tp") s.tp += all_reduced(c);
      if (c.group == "shard") s.shard += all_reduced(c);
      if (c.group == "replica") s.replica += all_reduced(c);
    }
    most.tp = std::max(most.tp, s.tp);
    most.shard = std::max(most.shard, s.shard);
    most.replica = std::max(most.replica, s.replica);
  }
  // A micro-batch's activations forward, their gradients back, once a chunk.
  const auto elements = static_cast<double>(l.micro_batch * l.seq_len * terms.model.width);
  most.pp = 2 * elements * static_cast<double>(dtype_bytes(terms.t) * l.micro_batches() * l.vpp) /
            static_cast<double>(l.sp ? l.tp : 1);
  return most;
}

}  // namespace rw
