// How many parameters a tensor-parallel rank holds of each group that training leases, reduces and updates as one:
// from the param table of the same model with one layer, so that any number of layers costs no more.
#pragma once
#include <cstdint>

#include "libcore/spec/layout.h"
#include "libcore/spec/model_spec.h"

namespace rw {

// Of one group, on tensor-parallel rank 0.
struct GroupParams {
  int64_t elements = 0;
  int64_t norms = 0;   // of them, in norms: whole on every rank, their gradients summed under sequence parallelism
  int64_t kv = 0;      // of them, keys' and values' projections: shared by ranks when there are fewer heads than ranks
  int64_t params = 0;  // in how many parameters
};
struct RankParams {
  // The whole groups, or, of a ZeRO group of so many ranks, its first rank's slices (Shards).
  RankParams(const ModelSpec& model, int64_t tp, int64_t shard = 1);
  GroupParams token, position, block, final_norm, head;  // head: of one that is not tied
  bool tied;

  // Calls f(group, times) for the groups that a stage holds.
  template <typename F>
  void each_group(const Layout& layout, int64_t stage, const F& f) const {
    const bool first = stage == 0, last = stage + 1 == layout.pp;
    // A tied head is the token embedding; the last stage has a copy.
    if (first || (last && tied)) f(token, 1);
    if (first && position.elements > 0) f(position, 1);
    f(block, stage_layers(layout, stage));
    if (last) f(final_norm, 1);
    if (last && !tied) f(head, 1);
  }
  static int64_t stage_layers(const Layout& layout, int64_t stage);
};

// About how many partial sums the gradient norm has when every group is cut over `ranks`: one for each block of a
// piece, and no piece has less than one.
double norm_partials(const RankParams& params, const Layout& layout, int64_t stage, int64_t ranks);

}  // namespace rw
