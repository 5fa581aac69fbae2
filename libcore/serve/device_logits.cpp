#include "libcore/serve/device_logits.h"

#include <algorithm>
#include <cstring>

#include "libcore/base/check.h"

namespace rw {
namespace {

// Of n asks with so many best ones each: the three results of SampleScan, as they lie one behind the other.
struct Layout {
  int64_t best_z, best_column, bytes;  // offsets; the facts lie at 0
  Layout(int64_t n, int64_t most_best)
      : best_z(n * static_cast<int64_t>(sizeof(SampleFacts))),
        best_column(best_z + n * most_best * static_cast<int64_t>(sizeof(float))),
        bytes(best_column + n * most_best * static_cast<int64_t>(sizeof(int32_t))) {}
};
static_assert(sizeof(SampleFacts) % sizeof(double) == 0 && sizeof(float) == sizeof(int32_t));

}  // namespace

DeviceLogits::DeviceLogits(const Plan& plan, const Exec& exec, Arena& arena) : plan_(plan), exec_(exec) {
  const auto rows = static_cast<size_t>(plan.rows);
  const Layout most(plan.rows, kMostSampleBest);
  wire_ = arena.take_mirrored<SampleAsk>(plan.rows, MemoryOwner::workspace);
  results_ = {.host = static_cast<std::byte*>(plan.host->take_host(most.bytes, MemoryOwner::workspace)),
              .device = static_cast<std::byte*>(arena.take(most.bytes, MemoryOwner::workspace))};
  rows_ = plan.host->take_host_n<float>(plan.rows * plan.columns, MemoryOwner::workspace);
  facts_.resize(rows);
  asked_.resize(rows);
  best_z_.resize(rows * kMostSampleBest);
  best_column_.resize(rows * kMostSampleBest);
}

void DeviceLogits::ask(int64_t slot, const float* row, SampleAsk ask) {
  CHECK(slot < plan_.rows && ask.n_best <= kMostSampleBest, "slot %ld of %ld, %d best logits, at most %ld", slot,
        plan_.rows, ask.n_best, kMostSampleBest);
  ask.row = plan_.columns > 0 ? static_cast<int32_t>((row - plan_.logits) / plan_.columns) : 0;
  wire_.host[asks_.size()] = ask;
  asked_[static_cast<size_t>(slot)] = ask;
  asks_.push_back(slot);
}

void DeviceLogits::answer() {
  if (asks_.empty()) return;
  const auto n = static_cast<int64_t>(asks_.size());
  int64_t most_best = 0;
  for (int64_t i = 0; i < n; ++i) most_best = std::max<int64_t>(most_best, wire_.host[i].n_best);
  const Layout layout(n, most_best);
  exec_.ops.upload({.device = wire_.device, .host = wire_.host, .bytes = n * static_cast<int64_t>(sizeof(SampleAsk))},
                   exec_.stream);
  exec_.ops.sample_scan({.facts = reinterpret_cast<SampleFacts*>(results_.device),
                         .best_z = reinterpret_cast<float*>(results_.device + layout.best_z),
                         .best_column = reinterpret_cast<int32_t*>(results_.device + layout.best_column),
                         .logits = plan_.logits,
                         .ask = wire_.device,
                         .n = n,
                         .v = plan_.columns,
                         .most_best = most_best},
                        exec_.stream);
  exec_.ops.read({.host = results_.host,
                  .device = results_.device,
                  .n = layout.bytes / static_cast<int64_t>(sizeof(double)),
                  .t = DType::f64},
                 exec_.stream);
  for (int64_t i = 0; i < n; ++i) {
    const auto slot = asks_[static_cast<size_t>(i)];
    const size_t n_best = static_cast<size_t>(wire_.host[i].n_best);
    std::memcpy(&facts_[static_cast<size_t>(slot)], results_.host + i * static_cast<int64_t>(sizeof(SampleFacts)),
                sizeof(SampleFacts));
    const auto part = [&](int64_t offset, int64_t element) { return results_.host + offset + i * most_best * element; };
    std::memcpy(best_z_.data() + slot * kMostSampleBest, part(layout.best_z, sizeof(float)), n_best * sizeof(float));
    std::memcpy(best_column_.data() + slot * kMostSampleBest, part(layout.best_column, sizeof(int32_t)),
                n_best * sizeof(int32_t));
  }
}

void DeviceLogits::best(int64_t slot, int64_t n, int32_t first_id, std::vector<TokenLogit>& best) const {
  best.clear();
  for (int64_t i = 0; i < std::min(n, plan_.columns); ++i)
    best.push_back({.z = best_z(slot)[i], .id = first_id + best_column(slot)[i]});
}

float DeviceLogits::logit(int64_t slot, int64_t column) const {
  const SampleFacts& f = facts(slot);
  const SampleAsk& asked = asked_[static_cast<size_t>(slot)];
  if (column == asked.column) return f.column_z;
  if (asked.share >= 0 && column == f.drawn) return f.drawn_z;
  if (column == f.arg) return f.max;
  const int64_t n = std::min<int64_t>(asked.n_best, plan_.columns);
  const int32_t* const at = std::find(best_column(slot), best_column(slot) + n, static_cast<int32_t>(column));
  CHECK(at != best_column(slot) + n, "the logit of column %ld was not asked for", column);
  return best_z(slot)[at - best_column(slot)];
}

float* DeviceLogits::fetch(int64_t slot, const float* row) {
  float* const here = rows_ + slot * plan_.columns;
  exec_.ops.read({.host = here, .device = row, .n = plan_.columns, .t = DType::f32}, exec_.stream);
  return here;
}

}  // namespace rw
