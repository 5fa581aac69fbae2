#include "libcore/plan/search/layout_space.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "libcore/base/error.h"
#include "libcore/spec/tensor_parallel.h"

namespace rw {
namespace {

constexpr int64_t kMostChunks = 16;  // --vpp beyond it saves less of the bubble than its messages cost
constexpr int64_t kMostMicroBatch = 128;

bool holds_node_groups(int64_t tp, int64_t dp, int64_t ranks_per_node) {
  if (ranks_per_node < tp || ranks_per_node % tp != 0) return false;
  const int64_t per_node = ranks_per_node / tp;
  return per_node > 1 && dp > per_node && dp % per_node == 0;
}

std::vector<int64_t> one_or(int64_t pinned, std::vector<int64_t> all) {
  return pinned > 0 ? std::vector<int64_t>{pinned} : std::move(all);
}

std::vector<int64_t> chunk_counts(const PlanQuestion& q, int64_t pp) {
  if (q.vpp > 0) return {q.vpp};
  std::vector<int64_t> counts = {1};
  if (pp > 1 && q.schedule.value_or(ScheduleKind::interleaved) == ScheduleKind::interleaved)
    for (int64_t v = 2; v <= kMostChunks && pp * v <= q.model.layers; ++v) counts.push_back(v);
  return counts;
}

std::vector<ScheduleKind> schedules(const PlanQuestion& q, int64_t pp, int64_t vpp) {
  if (q.schedule) return {*q.schedule};
  if (vpp > 1) return {ScheduleKind::interleaved};
  if (pp > 1) return {ScheduleKind::one_f_one_b, ScheduleKind::zb_h1};
  return {ScheduleKind::one_f_one_b};
}

struct Sharding {
  int64_t zero;
  ZeroGroup group;
};
std::vector<Sharding> shardings(const PlanQuestion& q, const Layout& l, int64_t ranks_per_node) {
  std::vector<Sharding> all;
  for (int64_t zero = 0; zero <= 3; ++zero) {
    if (q.zero && *q.zero != zero) continue;
    if (!q.zero && zero > 0 && l.dp == 1) continue;
    for (const ZeroGroup group : {ZeroGroup::all, ZeroGroup::node}) {
      if (q.zero_group && *q.zero_group != group && zero > 0) continue;
      if (group == ZeroGroup::node && (zero == 0 || !holds_node_groups(l.tp, l.dp, ranks_per_node))) continue;
      all.push_back({zero, group});
    }
  }
  return all;
}

struct Grid {
  int64_t tp, pp, dp;
};

// "--tp 8 x --pp 3 = 24 does not divide 64 ranks": why no grid is left. The first pin, or pair of pins, that alone
// leaves none.
std::string pin_fault(const PlanQuestion& q, int64_t ranks) {
  if (q.tp > 0)
    if (const std::string fault = tp_fault(q.model, q.tp); !fault.empty()) return fault;
  if (q.sp.value_or(false) && q.tp == 1) return "--sp shards over tensor-parallel ranks, but --tp is 1";
  if (q.pp > 0 && std::max<int64_t>(1, q.vpp) * q.pp > q.model.layers)
    return fmt::format("--pp {} x --vpp {} = {} stages are more than the model's {} layers", q.pp,
                       std::max<int64_t>(1, q.vpp), q.pp * std::max<int64_t>(1, q.vpp), q.model.layers);
  const std::pair<const char*, int64_t> pins[] = {{"tp", q.tp}, {"pp", q.pp}, {"dp", q.dp}};
  for (const auto& [name, value] : pins)
    if (value > 0 && ranks % value != 0) return fmt::format("--{} {} does not divide {} ranks", name, value, ranks);
  for (size_t a = 0; a < 3; ++a)
    for (size_t b = a + 1; b < 3; ++b)
      if (pins[a].second > 0 && pins[b].second > 0 && ranks % (pins[a].second * pins[b].second) != 0)
        return fmt::format("--{} {} x --{} {} = {} does not divide {} ranks", pins[a].first, pins[a].second,
                           pins[b].first, pins[b].second, pins[a].second * pins[b].second, ranks);
  if (q.tp > 0 && q.pp > 0 && q.dp > 0 && q.tp * q.pp * q.dp != ranks)
    return fmt::format("--tp {} x --pp {} x --dp {} = {}, but there are {} ranks", q.tp, q.pp, q.dp, q.tp * q.pp * q.dp,
                       ranks);
  if (q.dp > 0 && q.global_batch % q.dp != 0)
    return fmt::format("--dp {} does not divide --global-batch {}", q.dp, q.global_batch);
  if (q.dp > 0 && q.micro_batch > 0 && q.global_batch % (q.dp * q.micro_batch) != 0)
    return fmt::format("--dp {} x --micro-batch {} = {} does not divide --global-batch {}", q.dp, q.micro_batch,
                       q.dp * q.micro_batch, q.global_batch);
  if (q.micro_batch > 0 && q.global_batch % q.micro_batch != 0)
    return fmt::format("--micro-batch {} does not divide --global-batch {}", q.micro_batch, q.global_batch);
  if (q.vpp > 1 && q.schedule && *q.schedule != ScheduleKind::interleaved && *q.schedule != ScheduleKind::gpipe)
    return fmt::format("--vpp {} needs --schedule interleaved, not {}", q.vpp, schedule_name(*q.schedule));
  return fmt::format(
      "no split of {} ranks into tensor, pipeline and data parallelism fits a model of {} layers and {} heads and a "
      "global batch of {} with these pins",
      ranks, q.model.layers, q.model.heads, q.global_batch);
}

std::vector<Grid> grids(const PlanQuestion& q, int64_t ranks) {
  std::vector<Grid> all;
  for (const int64_t tp : one_or(q.tp, divisors(ranks))) {
    if (ranks % tp != 0 || !tp_fault(q.model, tp).empty() || (q.sp.value_or(false) && tp == 1)) continue;
    for (const int64_t pp : one_or(q.pp, divisors(ranks / tp))) {
      if (ranks / tp % pp != 0 || pp > q.model.layers) continue;
      const int64_t dp = ranks / tp / pp;
      if ((q.dp > 0 && q.dp != dp) || q.global_batch % dp != 0) continue;
      all.push_back({tp, pp, dp});
    }
  }
  return all;
}

}  // namespace

const std::vector<int64_t>& Dealer::deal(int64_t stages) {
  if (static_cast<int64_t>(known_.size()) <= stages) known_.resize(static_cast<size_t>(stages) + 1);
  std::vector<int64_t>& layers = known_[static_cast<size_t>(stages)];
  if (layers.empty()) layers = deal_layers(model_, stages, seq_len_);
  return layers;
}

std::string layout_fault(const Layout& l, const ModelSpec& model, int64_t ranks_per_node) {
  if (l.tp < 1 || l.pp < 1 || l.dp < 1 || l.vpp < 1 || l.micro_batch < 1) return "a size below 1";
  if (std::string fault = tp_fault(model, l.tp); !fault.empty()) return fault;
  if (l.pp * l.vpp > model.layers) return fmt::format("{} stages are more than {} layers", l.pp * l.vpp, model.layers);
  if (l.global_batch % (l.micro_batch * l.dp) != 0)
    return fmt::format("micro-batch {} x dp {} does not divide the global batch of {}", l.micro_batch, l.dp,
                       l.global_batch);
  if (l.schedule == ScheduleKind::interleaved && (l.vpp == 1 || l.micro_batches() % l.pp != 0))
    return fmt::format("interleaving needs vpp of 2 or more and micro-batches in multiples of pp {}", l.pp);
  if (l.vpp > 1 && l.schedule != ScheduleKind::interleaved && l.schedule != ScheduleKind::gpipe)
    return "chunks need the interleaved schedule";
  if (l.zero_group == ZeroGroup::node && (l.zero == 0 || !holds_node_groups(l.tp, l.dp, ranks_per_node)))
    return "nodes do not hold whole groups to shard over";
  return "";
}

std::vector<RecomputeChoice> recompute_choices(const PlanQuestion& q, int64_t stage_layers) {
  std::vector<RecomputeChoice> all;
  if (q.recompute && q.recompute_layers > 0 && *q.recompute != Recompute::none)
    return {{*q.recompute, std::min(q.recompute_layers, stage_layers)}};
  const auto allowed = [&](Recompute kind) { return !q.recompute || *q.recompute == kind; };
  if (allowed(Recompute::none)) all.push_back({Recompute::none, 0});
  if (allowed(Recompute::selective)) all.push_back({Recompute::selective, stage_layers});
  if (allowed(Recompute::full)) {
    if (!q.recompute)
      for (const int64_t quarter : {1, 2, 3})
        if (const int64_t n = stage_layers * quarter / 4;
            n > 0 && (all.empty() || all.back().layers != n || all.back().kind != Recompute::full))
          all.push_back({Recompute::full, n});
    all.push_back({Recompute::full, stage_layers});
  }
  return all;
}

void for_each_layout(const PlanQuestion& q, int64_t ranks, int64_t ranks_per_node, Dealer& dealer,
                     const std::function<void(const Layout&)>& visit) {
  int64_t visited = 0;
  for (const Grid& g : grids(q, ranks)) {
    Layout l{
        .tp = g.tp, .pp = g.pp, .dp = g.dp, .global_batch = q.global_batch, .seq_len = q.seq_len, .stage_layers = {}};
    for (const int64_t micro_batch : one_or(q.micro_batch, divisors(q.global_batch / g.dp))) {
      if (q.global_batch / g.dp % micro_batch != 0 || (q.micro_batch == 0 && micro_batch > kMostMicroBatch)) continue;
      l.micro_batch = micro_batch;
      for (const int64_t vpp : chunk_counts(q, g.pp)) {
        l.vpp = vpp;
        if (g.pp * vpp > q.model.layers) continue;
        l.stage_layers = dealer.deal(g.pp * vpp);
        for (const ScheduleKind schedule : schedules(q, g.pp, vpp)) {
          l.schedule = schedule;
          for (const Sharding& s : shardings(q, l, ranks_per_node)) {
            l.zero = s.zero;
            l.zero_group = s.group;
            for (const bool sp : {true, false}) {
              // The same bytes travel either way, and sequence parallelism shares the norms' work and memory out.
              if (sp != q.sp.value_or(g.tp > 1)) continue;
              l.sp = sp;
              if (!layout_fault(l, q.model, ranks_per_node).empty()) continue;
              ++visited;
              visit(l);
            }
          }
        }
      }
    }
  }
  if (visited == 0) fail(ErrorKind::usage, "{}", pin_fault(q, ranks));
}

}  // namespace rw
