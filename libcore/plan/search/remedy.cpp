#include "libcore/plan/search/remedy.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "libcore/base/error.h"
#include "libcore/plan/search/layout_space.h"
#include "libcore/plan/search/why_not.h"

namespace rw {
namespace {

constexpr int64_t kMostTried = 1 << 15;

void drop_pins(PlanQuestion& q) {
  q.tp = q.pp = q.vpp = q.dp = q.micro_batch = q.recompute_layers = q.max_memory = 0;
  q.sp.reset();
  q.zero.reset();
  q.zero_group.reset();
  q.recompute.reset();
  q.schedule.reset();
}

bool any_fits(const PlanQuestion& q) {
  Predictor predictor(predict_query(q));
  const int64_t ranks = q.ranks > 0 ? q.ranks : q.cluster.device_count();
  Dealer dealer(q.model, q.seq_len);
  bool found = false;
  for_each_layout(q, ranks, std::min(ranks, predictor.topology().ranks_per_node()), dealer, [&](const Layout& l) {
    if (found) return;
    Layout layout = l;
    WorstStage worst;
    found = takes_least_recompute(q, predictor, layout, worst);
  });
  return found;
}

// "tp 8 x ..., micro-batch 1", the best layout; "" when none fits or can be.
std::string best_layout(const PlanQuestion& q) {
  try {
    if (!any_fits(q)) return "";
    const Layout best = search_plans(q, 1).plans.front().layout;
    return fmt::format("{}, micro-batch {}", best.text(), best.micro_batch);
  } catch (const Error&) {
    return "";  // no layout of so many ranks, or nodes without a network
  }
}

// "--tp and --pp": the flags of the grid that are pinned.
std::string pinned_grid(const PlanQuestion& q) {
  std::vector<std::string> flags;
  if (q.tp > 0) flags.push_back("--tp");
  if (q.pp > 0) flags.push_back("--pp");
  if (q.vpp > 0) flags.push_back("--vpp");
  if (q.dp > 0) flags.push_back("--dp");
  if (q.sp) flags.push_back("--sp");
  if (q.schedule) flags.push_back("--schedule");
  std::string text;
  for (size_t i = 0; i < flags.size(); ++i) text += (i == 0 ? "" : i + 1 == flags.size() ? " and " : ", ") + flags[i];
  return text;
}

struct Unpin {
  std::string what;
  bool pinned;
  void (*drop)(PlanQuestion&);
};

std::vector<Unpin> unpins(const PlanQuestion& q) {
  return {{"let activations be computed again (--recompute auto)", q.recompute.has_value(),
           [](PlanQuestion& p) { p.recompute.reset(), p.recompute_layers = 0; }},
          {"fewer tokens per micro-batch (--micro-batch auto)", q.micro_batch > 1,
           [](PlanQuestion& p) { p.micro_batch = 0; }},
          {"let more states be sharded (--zero auto)", q.zero || q.zero_group,
           [](PlanQuestion& p) { p.zero.reset(), p.zero_group.reset(); }},
          {"leave " + pinned_grid(q) + " open", !pinned_grid(q).empty(),
           [](PlanQuestion& p) {
             p.tp = p.pp = p.dp = p.vpp = 0;
             p.sp.reset();
             p.schedule.reset();
           }},
          {"drop --max-memory", q.max_memory > 0, [](PlanQuestion& p) { p.max_memory = 0; }}};
}

// The fewest nodes, in doublings, with which something fits.
std::string more_nodes(const PlanQuestion& asked, bool keep_pins) {
  ClusterSpec larger = asked.cluster;
  for (int64_t nodes = 2 * asked.cluster.node_count(); nodes <= kMostTried; nodes *= 2) {
    if (nodes > asked.global_batch * asked.model.layers) break;
    set_node_count(larger, nodes);
    PlanQuestion q{static_cast<const PlanWishes&>(asked), asked.model, larger};
    if (!keep_pins) drop_pins(q);
    if (const std::string layout = best_layout(q); !layout.empty())
      return fmt::format("more nodes: with {} ({} devices){} {} fits", nodes, larger.device_count(),
                         keep_pins ? "" : " and nothing pinned", layout);
  }
  return "";
}

}  // namespace

std::string find_remedy(const PlanQuestion& asked) {
  for (const Unpin& u : unpins(asked)) {
    if (!u.pinned) continue;
    PlanQuestion q = asked;
    u.drop(q);
    if (const std::string layout = best_layout(q); !layout.empty())
      return fmt::format("{}: then {} fits", u.what, layout);
  }
  PlanQuestion open = asked;
  drop_pins(open);
  if (const std::string layout = best_layout(open); !layout.empty())
    return fmt::format("leave everything open: then {} fits", layout);
  if (asked.ranks > 0) return "more ranks, or devices with more memory";
  try {
    ClusterSpec two = asked.cluster;
    set_node_count(two, 2 * two.node_count());
    Topology with_network(two);
  } catch (const Error& e) {
    return fmt::format("more nodes could not be tried: {}", e.what());
  }
  for (const bool keep_pins : {true, false})
    if (const std::string found = more_nodes(asked, keep_pins); !found.empty()) return found;
  return fmt::format(
      "no change of a pin and no doubling of the nodes up to {} makes anything fit a global batch of {}; "
      "devices with more memory, or another batch",
      kMostTried, asked.global_batch);
}

}  // namespace rw
