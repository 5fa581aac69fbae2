// Work of the layers of one model, kept by what it depends on: layouts and devices that share it are priced without
// another dry run.
#pragma once
#include <map>
#include <tuple>

#include "libcore/plan/price/step_work.h"

namespace rw {

class WorkCache {
 public:
  // The model and the backend outlive the cache.
  WorkCache(const ModelSpec& model, DType t, const Ops& backend, int threads)
      : model_(model), t_(t), backend_(backend), threads_(threads) {}
  const StepWork& of(const Layout& layout, Recompute recompute);

 private:
  using Key = std::tuple<int64_t, bool, int64_t, int64_t, Recompute, bool, bool, Write>;
  const ModelSpec& model_;
  DType t_;
  const Ops& backend_;
  int threads_;
  std::map<Key, StepWork> known_;
};

}  // namespace rw
