#include "libcore/plan/search/memory_remedy.h"

#include <fmt/core.h>

#include <numeric>

#include "libcore/plan/search/layout_space.h"

namespace rw {
namespace {

// Changes of one kind, least first.
using Ladder = std::vector<MemoryRemedy>;

constexpr int64_t kMostDegree = 64;  // of tp and pp, that is tried

class Ladders {
 public:
  explicit Ladders(const DryRunSettings& settings)
      : layout_(settings.step.layout), dealer_(settings.step.spec, layout_.seq_len) {}

  Ladder recompute() const {
    Ladder ladder;
    for (const Recompute r : {Recompute::selective, Recompute::full}) {
      if (r < layout_.recompute) continue;
      Layout l = layout_;
      l.recompute = r;
      l.recompute_layers = 0;  // all
      ladder.push_back({.change = fmt::format("--recompute {}", recompute_name(r)), .layout = l});
    }
    return ladder;
  }
  Ladder micro_batch() const {
    Ladder ladder;
    for (int64_t b = layout_.micro_batch - 1; b >= 1; --b) {
      if (layout_.micro_batch % b != 0) continue;
      Layout l = layout_;
      l.micro_batch = b;
      ladder.push_back({.change = fmt::format("--micro-batch {}", b), .layout = l});
    }
    return ladder;
  }
  Ladder sequence_parallel() const {
    if (layout_.sp || layout_.tp == 1) return {};
    Layout l = layout_;
    l.sp = true;
    return {{.change = "--sp", .layout = l}};
  }
  Ladder zero() const {
    Ladder ladder;
    for (int64_t z = layout_.zero + 1; z <= 3 && layout_.dp > 1; ++z) {
      Layout l = layout_;
      l.zero = z;
      ladder.push_back({.change = fmt::format("--zero {}", z), .layout = l});
    }
    return ladder;
  }
  Ladder split(const char* flag, int64_t Layout::*degree) {
    Ladder ladder;
    for (int64_t factor = 2; layout_.*degree * factor <= kMostDegree; factor *= 2) {
      Layout l = layout_;
      l.*degree *= factor;
      l.dp /= std::gcd(l.dp, factor);
      if (l.pp * l.vpp > model_layers()) break;
      if (degree == &Layout::pp) l.stage_layers = dealer_.deal(l.pp * l.vpp);
      std::string change = fmt::format("--{} {} --dp {}", flag, l.*degree, l.dp);
      if (l.ranks() != layout_.ranks()) change += fmt::format(" on {} ranks", l.ranks());
      ladder.push_back({.change = change, .layout = l});
    }
    return ladder;
  }

 private:
  int64_t model_layers() const {
    int64_t n = 0;
    for (const int64_t l : layout_.stage_layers) n += l;
    return n;
  }
  const Layout& layout_;
  Dealer dealer_;
};

}  // namespace

std::vector<MemoryRemedy> memory_remedies(const DryRunSettings& settings, double limit) {
  const ModelSpec& model = settings.step.spec;
  MemoryModel memory({.model = model,
                      .ranks_per_node = settings.ranks_per_node,
                      .t = settings.backend.t,
                      .backend = settings.backend.ops,
                      .threads = settings.backend.stream.threads});
  // The formula says which stage is the worst; the dry run, whether it fits.
  const auto fits = [&](MemoryRemedy& change) {
    if (!layout_fault(change.layout, model, settings.ranks_per_node).empty()) return false;
    constexpr double kNear = 1.02;
    const WorstStage worst = memory.worst_stage(change.layout);
    if (worst.memory.total() > kNear * limit) return false;
    DryRunSettings changed{
        .step = settings.step, .backend = settings.backend, .ranks_per_node = settings.ranks_per_node};
    changed.step.layout = change.layout;
    change.stage = worst.stage;
    change.bytes = dry_run(changed, worst.stage * change.layout.tp * change.layout.dp).total_bytes;
    return static_cast<double>(change.bytes) <= limit;
  };
  Ladders ladders(settings);
  std::vector<MemoryRemedy> remedies;
  for (Ladder& ladder :
       std::vector<Ladder>{ladders.sequence_parallel(), ladders.micro_batch(), ladders.zero(), ladders.recompute(),
                           ladders.split("tp", &Layout::tp), ladders.split("pp", &Layout::pp)})
    for (MemoryRemedy& change : ladder)
      if (fits(change)) {
        remedies.push_back(std::move(change));
        break;
      }
  return remedies;
}

}  // namespace rw
