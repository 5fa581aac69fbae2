// The layouts that a number of ranks, a model, a batch and pins allow.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "libcore/plan/search/search.h"

namespace rw {

// Deals a model's layers to stages, each number of stages once.
class Dealer {
 public:
  Dealer(const ModelSpec& model, int64_t seq_len) : model_(model), seq_len_(seq_len) {}
  const std::vector<int64_t>& deal(int64_t stages);

 private:
  const ModelSpec& model_;
  int64_t seq_len_;
  std::vector<std::vector<int64_t>> known_;
};

// Why a layout cannot be: of the model, the batch or the options; "" when it can. What settle_layout refuses, without
// its advice.
std::string layout_fault(const Layout& layout, const ModelSpec& model, int64_t ranks_per_node);

// What of a step's time and memory recomputation trades, least first: none, selective, full over a quarter, half, three
// quarters and all of a stage's layers; or what is pinned.
struct RecomputeChoice {
  Recompute kind = Recompute::none;
  int64_t layers = 0;
};
std::vector<RecomputeChoice> recompute_choices(const PlanQuestion& question, int64_t stage_layers);

// Calls `visit` for every layout but its recomputation (none there), for so many ranks. Error{usage} when the pins
// leave none: which of them conflict.
void for_each_layout(const PlanQuestion& question, int64_t ranks, int64_t ranks_per_node, Dealer& dealer,
                     const std::function<void(const Layout&)>& visit);

}  // namespace rw
