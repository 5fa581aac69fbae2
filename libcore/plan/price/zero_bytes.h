// What ops read and write in a step because of ZeRO, beside the work of stage_work and the optimizer.
#pragma once
#include "libcore/plan/price/step_work.h"

namespace rw {

struct ZeroBytes {
  double sums = 0;     // stages 2 and 3: slices of gradients, added up as each micro-batch's arrive
  double packing = 0;  // of weights: once a step where they stay; in stage 3 whenever a pass has gathered them
};
struct ZeroTerms {
  const StepWork& work;  // of the layout's shapes
  const ModelSpec& model;
  const Layout& layout;
  int64_t ranks_per_node = 1;
  const Ops& backend;
};
// A backend with one copy of a weight for both directions (plain_sizes) makes it for each gather; others pack what the
// pass multiplies with: the forward's and the backward's form, and the forward's again where all is recomputed.
ZeroBytes zero_bytes(const ZeroTerms& terms, int64_t stage);

}  // namespace rw
