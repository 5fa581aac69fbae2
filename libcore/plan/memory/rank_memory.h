// Memory of a rank in closed form: what the dry run counts, without running it. For pruning a search; the plan that is
// handed out is dry-run. A test holds the two within 1 %.
//
// States: 4 bytes a parameter each of masters, gradients and the two moments, cut over the ZeRO group (Rajbhandari et
// al. 2020, table 1) in the slices that Shards makes; packed weights as the backend keeps them. Activations: the sum
// over chunks of what a slot holds, times the slots that the schedule fills (held_slots); what a slot, a layer and an
// end hold is asked of Stage itself, once for each (tp, sp, micro-batch, recompute).
#pragma once
#include <array>
#include <cstdint>
#include <memory>

#include "kernels/ops.h"
#include "libcore/device/arena.h"
#include "libcore/spec/layout.h"

namespace rw {

struct RankMemory {
  std::array<double, static_cast<size_t>(MemoryOwner::n_owners)> bytes{};
  double total() const;
  double& operator[](MemoryOwner o) { return bytes[static_cast<size_t>(o)]; }
  double operator[](MemoryOwner o) const { return bytes[static_cast<size_t>(o)]; }
};

// Stage with the most, and its bytes.
struct WorstStage {
  int64_t stage = 0;
  RankMemory memory;
};

// Keeps what layouts have in common: a search asks one of these.
class MemoryModel {
 public:
  struct Terms {
    const ModelSpec& model;  // outlives this
    int64_t ranks_per_node = 1;
    DType t = DType::bf16;
    const Ops& backend;  // whose workspace and packed sizes
    int threads = 1;
  };
  explicit MemoryModel(const Terms& terms);
  ~MemoryModel();
  // Of the stage's first rank.
  RankMemory of(const Layout& layout, int64_t stage);
  WorstStage worst_stage(const Layout& layout);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The same for one layout alone.
struct MemoryQuery {
  const ModelSpec& model;
  const Layout& layout;
  int64_t ranks_per_node = 1;
  DType t = DType::bf16;
  const Ops& backend;  // whose workspace and packed sizes
  int threads = 1;
};
RankMemory rank_memory(const MemoryQuery& query, int64_t stage);
WorstStage worst_stage(const MemoryQuery& query);

}  // namespace rw
