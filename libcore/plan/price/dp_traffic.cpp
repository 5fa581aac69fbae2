// What data parallelism sends, as grad_sync, weight_store, sharded_weights and grad_norm do it, in closed form
// (Rajbhandari et al. 2020, section 7).
#include <algorithm>
#include <array>

#include "libcore/plan/memory/rank_params.h"
#include "libcore/plan/price/step_work.h"
#include "libcore/spec/tensor_parallel.h"

namespace rw {
namespace {

constexpr double kFloat = sizeof(float), kDouble = sizeof(double);

// ZeRO-3's two leases over a step: how often a block is gathered.
class Leases {
 public:
  int64_t gathers() const { return gathers_; }
  void pass(int64_t first, int64_t last, int64_t step) {
    for (int64_t l = first; l != last; l += step) {
      const size_t mine = lease(l, kNone);
      if (l + step != last) lease(l + step, mine);
    }
  }

 private:
  static constexpr size_t kNone = 2;
  // Where a layer lies, gathered when it does not lie anywhere yet; `used` is not free.
  size_t lease(int64_t layer, size_t used) {
    for (size_t i = 0; i < 2; ++i)
      if (holds_[i] == layer) return i;
    const size_t free = used == 0 ? 1 : 0;
    holds_[free] = layer;
    ++gathers_;
    return free;
  }
  std::array<int64_t, 2> holds_{-1, -1};
  int64_t gathers_ = 0;
};

int64_t block_gathers(const Layout& layout, int64_t stage) {
  std::vector<int64_t> begins{0};
  for (int64_t c = 0; c < layout.vpp; ++c)
    begins.push_back(begins.back() + layout.stage_layers[static_cast<size_t>(c * layout.pp + stage)]);
  Leases leases;
  for (const Action& a : pipeline_actions(layout.pipeline(), static_cast<int>(stage))) {
    const auto c = static_cast<size_t>(a.chunk);
    if (a.kind == ActionKind::forward) leases.pass(begins[c], begins[c + 1], 1);
    else if (a.kind != ActionKind::backward_weight) leases.pass(begins[c + 1] - 1, begins[c] - 1, -1);
  }
  return leases.gathers();
}

class Traffic {
 public:
  void add(const char* group, int64_t ranks, const CommWork& work) {
    if (ranks <= 1 || work.calls == 0) return;
    all_.push_back(work);
    all_.back().group = group;
  }
  std::vector<CommWork> all() { return std::move(all_); }

 private:
  std::vector<CommWork> all_;
};

}  // namespace

std::vector<CommWork> dp_traffic(const ModelSpec& model, const Layout& layout, int64_t stage, int64_t ranks_per_node) {
  const RankParams params(model, layout.tp);
  const int64_t shard = zero_ranks(layout, ranks_per_node), replica = layout.dp / shard;
  const int64_t m = layout.micro_batches(), kv = kv_share(model, layout.tp);
  const auto each = [&](const auto& f) { params.each_group(layout, stage, f); };
  Traffic traffic;
  const auto reduce = [&](CommKind kind, const char* group, int64_t ranks, int64_t times, double share) {
    each([&](const GroupParams& g, int64_t n) {
      traffic.add(
          group, ranks,
          {.kind = kind, .group = {}, .calls = n * times, .bytes = static_cast<double>(g.elements) * share * kFloat});
    });
  };
  double elements = 0, norms = 0, kv_elements = 0;
  each([&](const GroupParams& g, int64_t n) {
    elements += static_cast<double>(n * g.elements);
    norms += static_cast<double>(n * g.norms);
    kv_elements += static_cast<double>(n * g.kv);
  });
  const double own = 1.0 / static_cast<double>(shard);

  // Gradients.
  switch (layout.zero) {
    case 0: reduce(CommKind::all_reduce, "replica", replica, 1, 1); break;
    case 1:
      reduce(CommKind::reduce_scatter, "shard", shard, 1, 1);
      reduce(CommKind::all_reduce, "replica", replica, 1, own);
      break;
    default:
      reduce(CommKind::reduce_scatter, "shard", shard, m, 1);
      traffic.add("replica", replica,
                  {.kind = CommKind::all_reduce, .group = {}, .calls = 1, .bytes = elements * own * kFloat});
  }
  // Weights.
  if (layout.zero == 1 || layout.zero == 2) reduce(CommKind::all_gather, "shard", shard, 1, 1);
  if (layout.zero == 3 && shard > 1)
    each([&](const GroupParams& g, int64_t) {
      const int64_t calls = &g == &params.block ? block_gathers(layout, stage) : 1;
      traffic.add("shard", shard,
                  {.kind = CommKind::all_gather,
                   .group = {},
                   .calls = calls,
                   .bytes = static_cast<double>(g.elements) * kFloat});
    });

  const auto sum = [&](const char* group, int64_t ranks, double bytes) {
    traffic.add(group, ranks, {.kind = CommKind::all_reduce, .group = {}, .calls = 1, .bytes = bytes});
  };
  const bool end = layout.pp > 1 && (stage == 0 || stage + 1 == layout.pp);
  if (model.tied_head && end) sum("ends", 2, static_cast<double>(params.token.elements) * own * kFloat);
  if (layout.sp) sum("tp", layout.tp, norms * own * kFloat);
  sum("kv", kv, kv_elements * own * kFloat);
  sum("shard", shard, norm_partials(params, layout, stage, shard) * kDouble);
  // Scalars: token counts and votes (5), loss, norm over tp and stages.
  sum("world", layout.ranks(), 5 * sizeof(int64_t));
  sum("world", layout.ranks(), kDouble);
  sum("tp", layout.tp, kDouble);
  sum("pp_backward", layout.pp, kDouble);
  return traffic.all();
}

}  // namespace rw
