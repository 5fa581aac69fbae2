#include "libcore/plan/search/why_not.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "libcore/base/units.h"
#include "libcore/plan/search/layout_space.h"

namespace rw {
namespace {

std::string owners_text(const RankMemory& memory) {
  std::vector<std::pair<double, MemoryOwner>> largest;
  for (size_t o = 0; o < memory.bytes.size(); ++o)
    if (memory.bytes[o] > 0) largest.emplace_back(memory.bytes[o], static_cast<MemoryOwner>(o));
  std::sort(largest.rbegin(), largest.rend());
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(3, largest.size()); ++i)
    text += fmt::format("{}{} {}", i == 0 ? "" : ", ", memory_owner_name(largest[i].second),
                        format_bytes(largest[i].first));
  return text;
}

// The category that grew most from the best to another, in words.
std::string slower_because(const Prediction& best, const Prediction& other, int64_t ranks_per_node) {
  constexpr double kSame = 5e-4;  // relative
  if (other.step_s <= best.step_s * (1 + kSame))
    return other.memory.total() > best.memory.total() ? "as fast, and takes more memory" : "as fast";
  const StepSeconds &a = best.time, &b = other.time;
  struct Growth {
    double seconds;
    std::string reason;
  };
  const bool tp_crosses = other.layout.tp > ranks_per_node;
  const Growth growths[] = {
      {b.exposed_tp - a.exposed_tp,
       tp_crosses ? "tensor-parallel groups would cross nodes" : "more tensor-parallel communication"},
      {b.exposed_pp - a.exposed_pp, "more messages between stages"},
      {b.exposed_dp - a.exposed_dp, "more data-parallel communication stays exposed"},
      {b.bubble - a.bubble, fmt::format("the pipeline's bubble would be {:.0f} %", 100 * b.bubble / other.step_s)},
      {b.optimizer - a.optimizer, "each rank would update more parameters"},
      {b.compute - a.compute,
       other.layout.recompute > best.layout.recompute || other.layout.recompute_layers > best.layout.recompute_layers
           ? "more would be computed again"
       : other.layout.tp != best.layout.tp || other.layout.micro_batch != best.layout.micro_batch
           ? "matrix products of that size run less efficiently"
           : "the largest stage would have more to compute"}};
  return std::max_element(std::begin(growths), std::end(growths),
                          [](const Growth& x, const Growth& y) { return x.seconds < y.seconds; })
      ->reason;
}

struct Change {
  std::string text;
  Layout layout;
};

Layout dealt(Layout l, const ModelSpec& model, Dealer& dealer) {
  if (l.pp == 1 || l.pp > model.layers) l.vpp = 1;
  else l.vpp = std::min(l.vpp, model.layers / l.pp);
  if (l.pp <= model.layers) l.stage_layers = dealer.deal(l.pp * l.vpp);
  if (l.vpp == 1 && l.schedule == ScheduleKind::interleaved) l.schedule = ScheduleKind::one_f_one_b;
  if (l.vpp > 1) l.schedule = ScheduleKind::interleaved;
  if (l.tp == 1) l.sp = false;
  if (l.dp == 1) l.zero = 0;
  return l;
}

// Neighbours in every direction that is not pinned; a factor of ranks moves between two directions.
std::vector<Change> neighbours(const PlanQuestion& q, const Layout& best, Dealer& dealer) {
  std::vector<Change> all;
  const auto add = [&](const char* name, int64_t to, int64_t from, Layout l) {
    all.push_back({fmt::format("{} {} instead of {}", name, to, from), dealt(std::move(l), q.model, dealer)});
  };
  const auto moved = [&](int64_t Layout::*to, int64_t Layout::*from) {
    Layout l = best;
    l.*to *= 2;
    if (l.*from % 2 != 0) return;
    l.*from /= 2;
    const char* name = to == &Layout::tp ? "tp" : to == &Layout::pp ? "pp" : "dp";
    const char* other = from == &Layout::tp ? "tp" : from == &Layout::pp ? "pp" : "dp";
    all.push_back(
        {fmt::format("{} {} and {} {} instead of {} and {}", name, l.*to, other, l.*from, best.*to, best.*from),
         dealt(l, q.model, dealer)});
  };
  for (const auto& [to, from] :
       {std::pair(&Layout::tp, &Layout::dp), std::pair(&Layout::dp, &Layout::tp), std::pair(&Layout::pp, &Layout::dp),
        std::pair(&Layout::dp, &Layout::pp), std::pair(&Layout::tp, &Layout::pp), std::pair(&Layout::pp, &Layout::tp)})
    moved(to, from);
  Layout l = best;
  if (q.micro_batch == 0) {
    l.micro_batch = best.micro_batch * 2;
    add("micro-batch", l.micro_batch, best.micro_batch, l);
    if (best.micro_batch % 2 == 0) {
      l.micro_batch = best.micro_batch / 2;
      add("micro-batch", l.micro_batch, best.micro_batch, l);
    }
  }
  l = best;
  if (!q.zero && best.dp > 1)
    for (const int64_t zero : {best.zero - 1, best.zero + 1})
      if (zero >= 0 && zero <= 3)
        l.zero = zero, l.zero_group = zero == 0 ? ZeroGroup::all : best.zero_group, add("zero", zero, best.zero, l);
  l = best;
  if (q.vpp == 0 && best.pp > 1) {
    l.vpp = best.vpp == 1 ? 2 : 1;
    add("vpp", l.vpp, best.vpp, l);
  }
  l = best;
  if (!q.recompute)
    for (const Recompute r : {Recompute::none, Recompute::selective, Recompute::full})
      if (r != best.recompute) {
        l.recompute = r;
        l.recompute_layers = r == Recompute::none ? 0 : q.model.layers;
        all.push_back(
            {fmt::format("recompute {} instead of {}", recompute_name(r), recompute_name(best.recompute)), l});
      }
  return all;
}

}  // namespace

std::vector<Rejected> why_not(const PlanQuestion& q, Predictor& predictor, const Prediction& best) {
  Dealer dealer(q.model, q.seq_len);
  const int64_t per_node = std::min(best.layout.ranks(), predictor.topology().ranks_per_node());
  const double limit = memory_limit(q, predictor);
  std::vector<Rejected> all;
  for (Change& c : neighbours(q, best.layout, dealer)) {
    if (!layout_fault(c.layout, q.model, per_node).empty()) continue;
    Rejected r{.layout = c.layout, .change = c.text, .reason = {}};
    const WorstStage worst = predictor.memory(c.layout);
    if (worst.memory.total() > limit) {
      r.reason = fmt::format("does not fit by {} on stage {} ({})", format_bytes(worst.memory.total() - limit),
                             worst.stage, owners_text(worst.memory));
    } else {
      const Prediction p = predictor.predict(c.layout, effort_for(c.layout));
      r.step_s = p.step_s;
      if (p.step_s < best.step_s) continue;  // recomputes less or more than the search tried: as good as the best
      r.reason = fmt::format("{:+.1f} % step: {}", 100 * (p.step_s / best.step_s - 1),
                             slower_because(best, p, predictor.topology().ranks_per_node()));
    }
    all.push_back(std::move(r));
  }
  return all;
}

void NearMiss::consider(const Layout& layout, const WorstStage& worst, double limit) {
  const double missing = worst.memory.total() - limit;
  if (any_ && missing >= missing_) return;
  any_ = true;
  layout_ = layout;
  worst_ = worst;
  missing_ = missing;
}

std::string NearMiss::text() const {
  if (!any_) return "";
  return fmt::format("the nearest, {} with micro-batch {}, does not fit by {} on stage {} ({})", layout_.text(),
                     layout_.micro_batch, format_bytes(missing_), worst_.stage, owners_text(worst_.memory));
}

namespace {

PlanQuestion of_cluster(const PlanQuestion& q, const ClusterSpec& cluster) {
  return {static_cast<const PlanWishes&>(q), q.model, cluster};
}

}  // namespace

std::vector<std::string> explain(const PlanQuestion& asked, const PlanAnswer& answer) {
  if (answer.plans.empty()) return {};
  const Prediction& best = answer.plans.front();
  struct Relaxed {
    const char* limit;
    std::string gain;
    double step_s;
  };
  std::vector<Relaxed> relaxed;
  const auto with = [&](const char* limit, const char* what, auto&& change) {
    ClusterSpec cluster = asked.cluster;
    change(cluster);
    const PlanQuestion q = of_cluster(asked, cluster);
    const PlanAnswer other = search_plans(q, 1);
    if (other.plans.empty()) return;
    const Prediction& p = other.plans.front();
    relaxed.push_back({limit,
                       fmt::format("{} the best would be {} (micro-batch {}), {:.1f} % faster", what, p.layout.text(),
                                   p.layout.micro_batch, 100 * (1 - p.step_s / best.step_s)),
                       p.step_s});
  };
  constexpr double kUnlimited = 1e3;
  with("device memory", "with unlimited device memory", [](ClusterSpec& c) {
    for (DeviceType& d : c.devices) d.memory *= static_cast<int64_t>(kUnlimited);
  });
  with("the network between nodes", "with a network without limit", [](ClusterSpec& c) {
    for (NodeType& n : c.nodes) n.nic_bandwidth *= kUnlimited, n.nic_latency /= kUnlimited;
    c.network = {};
  });
  with("the links within a node", "with links without limit", [](ClusterSpec& c) {
    for (NodeType& n : c.nodes) {
      n.link_bandwidth *= kUnlimited;
      n.link_latency /= kUnlimited;
      n.collectives.clear();
    }
  });
  std::stable_sort(relaxed.begin(), relaxed.end(),
                   [](const Relaxed& a, const Relaxed& b) { return a.step_s < b.step_s; });
  std::vector<std::string> lines;
  constexpr double kDecides = 0.005;
  if (relaxed.empty() || relaxed.front().step_s > (1 - kDecides) * best.step_s)
    lines.push_back("what decides: compute; neither more memory nor faster links would make a better plan");
  else lines.push_back(fmt::format("what decides: {}", relaxed.front().limit));
  for (const Relaxed& r : relaxed)
    if (r.step_s <= (1 - kDecides) * best.step_s) lines.push_back(r.gain);
  return lines;
}

}  // namespace rw
