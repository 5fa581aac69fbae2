#include "libcore/plan/serve/serve_advice.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "libcore/base/error.h"
#include "libcore/base/units.h"

namespace rw {
namespace {

// Of what servers do at most, what they are loaded with where latency is to stay in bounds.
constexpr double kSafeLoad = 0.7;
// Of the objective, what a step may take: the estimate that cuts the chunks is not exact.
constexpr double kBudgetShare = 0.8;
// Looser objectives, lower rates and larger memories are tried so many times, each a step further.
constexpr int kTries = 4;
constexpr double kTryStep = 0.05;
// Steps of more tokens have hardly more of them a second.
constexpr int64_t kMostBatchTokens = 16384;

// What people type for a rate: three digits, rounded down so that it is sustained.
double rounded_down(double rate) {
  const double unit = std::pow(10.0, std::floor(std::log10(rate)) - 2);
  return std::floor(rate / unit + 1e-9) * unit;
}

double ratio(int64_t needed, int64_t there) {
  return static_cast<double>(needed) / static_cast<double>(std::max<int64_t>(there, 1)) - 1;
}

std::string plural(int64_t n, const char* what) { return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s"); }

std::string layout_text(const ServeOption& o) {
  if (o.split)
    return fmt::format("{} of tp {} and {} of tp {}", plural(o.server.replicas, "prefill server"), o.server.tp,
                       plural(o.decoder.replicas, "decode server"), o.decoder.tp);
  return fmt::format("{} of tp {}", plural(o.server.replicas, "replica"), o.server.tp);
}

std::string tp_text(const ServeOption& o) {
  return o.split && o.decoder.tp != o.server.tp
             ? fmt::format("{},{}", std::min(o.server.tp, o.decoder.tp), std::max(o.server.tp, o.decoder.tp))
             : fmt::format("{}", o.server.tp);
}

class Adviser {
 public:
  Adviser(const ServePlanQuery& query, const std::vector<ServeOption>& options) : q_(query), options_(options) {
    for (size_t t = 0; t < q_.cluster.nodes.size(); ++t) types_.push_back(std::make_unique<ServeOptions>(q_, t));
  }

  std::vector<ServeAdvice> run() {
    const bool fits = std::any_of(options_.begin(), options_.end(),
                                  [](const ServeOption& o) { return o.server.memory.fault.empty(); });
    if (!fits) {
      more_memory();
      shorter_context();
    }
    longer_context();
    free_changes();
    if (fits) {
      more_nodes();
      lower_rate();
      looser_objective();
    }
    smaller_weights();
    std::stable_sort(advice_.begin(), advice_.end(),
                     [](const ServeAdvice& a, const ServeAdvice& b) { return a.change < b.change; });
    return std::move(advice_);
  }

 private:
  void each(const auto& body) {
    for (const auto& type : types_)
      for (const int64_t tp : type->tps()) body(*type, tp);
  }

  void say(const char* kind, double change, std::string text) {
    advice_.push_back({.kind = kind, .text = std::move(text), .change = std::max(change, 0.0)});
  }

  // The best option of the changed question, when it keeps the objective.
  static std::optional<ServeOption> kept(const ServePlanQuery& changed) {
    if (changed.spec.serve_mode() == ServeMode::split && changed.spec.fixed_replicas() == 1) return {};
    std::vector<ServeOption> options = serve_options(changed);
    if (options.empty() || !options.front().feasible) return {};
    return std::move(options.front());
  }
  std::optional<ServeOption> kept_with(const ServePlanSpec& spec) const {
    return kept({.model = q_.model, .cluster = q_.cluster, .workload = q_.workload, .spec = spec});
  }
  std::optional<ServeOption> kept_with(const Workload& workload) const {
    return kept({.model = q_.model, .cluster = q_.cluster, .workload = workload, .spec = q_.spec});
  }

  // What costs nothing: the other mode, chunks of prompts that leave the running streams their rhythm, larger ones
  // where prompts wait for them, degrees and numbers of servers that were not asked for.
  void free_changes() {
    ServePlanSpec changed = q_.spec;
    if (q_.spec.serve_mode() != ServeMode::automatic) {
      changed.mode = q_.spec.serve_mode() == ServeMode::split ? "colocated" : "split";
      if (const auto o = kept_with(changed))
        say("mode", 0, fmt::format("--mode {} ({})", changed.mode, layout_text(*o)));
    }
    if (q_.spec.serve.itl_budget_ms == 0) {
      changed = q_.spec;
      // As it is printed: what was tried is what is advised.
      changed.serve.itl_budget_ms = std::stod(fmt::format("{:.3g}", kBudgetShare * q_.spec.serve.slo_itl_ms));
      if (const auto o = kept_with(changed))
        say("itl-budget", 0, fmt::format("--itl-budget-ms {:.3g} ({})", changed.serve.itl_budget_ms, layout_text(*o)));
    }
    larger_batches();
    if (!q_.spec.tps().empty()) {
      changed = q_.spec;
      changed.tp = "auto";
      if (const auto any = kept_with(changed)) {
        changed.tp = tp_text(*any);
        if (const auto o = kept_with(changed)) say("tp", 0, fmt::format("--tp {} ({})", changed.tp, layout_text(*o)));
      }
    }
    const int64_t fixed = q_.spec.fixed_replicas();
    if (fixed == 0) return;
    changed = q_.spec;
    changed.replicas = "auto";
    if (const auto any = kept_with(changed)) {
      const int64_t n = any->server.replicas + any->decoder.replicas;
      changed.replicas = std::to_string(n);
      if (const auto o = kept_with(changed))
        say("replicas", ratio(n, fixed), fmt::format("--replicas {} ({})", n, layout_text(*o)));
    }
  }

  // Prompts are cut into chunks of a step's tokens; on a device whose steps read all weights, few of them are slow.
  void larger_batches() {
    const double share = q_.spec.attainment;
    const bool late = std::any_of(options_.begin(), options_.end(), [&](const ServeOption& o) {
      return o.devices > 0 && o.stats.ttft_attainment < share;
    });
    if (!late) return;
    ServePlanSpec changed = q_.spec;
    while ((changed.serve.max_batch_tokens *= 2) <= kMostBatchTokens) {
      const auto o = kept_with(changed);
      if (!o) continue;
      say("batch-tokens", 0,
          fmt::format("--max-batch-tokens {} ({})", changed.serve.max_batch_tokens, layout_text(*o)));
      return;
    }
  }

  // The cluster with so many more nodes that there are `needed` of one type; none where its network is not described.
  std::optional<ClusterSpec> grown(const std::string& type, int64_t needed) const {
    const int64_t there = q_.cluster.node_count();
    for (int64_t n = there + 1; n <= kMostNodes; ++n) {
      ClusterSpec more = q_.cluster;
      try {
        set_node_count(more, n);
      } catch (const Error&) {
        if (q_.cluster.nodes.size() == 1) return {};
        if (n > there * (needed + 1)) return {};
        continue;  // not a multiple that keeps the types' proportion
      }
      const auto node =
          std::find_if(more.nodes.begin(), more.nodes.end(), [&](const auto& t) { return t.name == type; });
      if (node->count >= needed) return more;
      if (q_.cluster.nodes.size() == 1) n = needed - 1;
    }
    return {};
  }

  // Options that keep the objective with more devices than there are.
  void more_nodes() {
    const ServeOption* least = nullptr;
    for (const ServeOption& o : options_)
      if (o.short_of_devices && (least == nullptr || o.devices < least->devices)) least = &o;
    if (least == nullptr) return;
    const auto node = std::find_if(q_.cluster.nodes.begin(), q_.cluster.nodes.end(),
                                   [&](const NodeType& n) { return n.name == least->node; });
    const int64_t nodes = (least->devices + node->devices - 1) / node->devices;
    const bool unknown = std::any_of(q_.cluster.nodes.begin(), q_.cluster.nodes.end(),
                                     [](const NodeType& n) { return !(n.nic_bandwidth > 0); });
    if (unknown) {
      say("network", ratio(nodes, node->count),
          fmt::format(
              "more devices: {} has {} of the {} that {} take, and more than one node needs a network, which its "
              "file does not describe (no nic-bandwidth)",
              q_.cluster.name, least->devices_there, least->devices, layout_text(*least)));
      return;
    }
    const auto more = grown(least->node, nodes);
    if (!more) return;
    if (const auto o = kept({.model = q_.model, .cluster = *more, .workload = q_.workload, .spec = q_.spec}))
      say("nodes", ratio(more->node_count(), q_.cluster.node_count()),
          fmt::format("--nodes {} ({}; there are {})", more->node_count(), layout_text(*o), q_.cluster.node_count()));
  }

  // Requests a second that the servers there is room for sustain.
  double most_rate() {
    double most = 0;
    const int64_t fixed = q_.spec.fixed_replicas();
    if (q_.spec.serve_mode() != ServeMode::split)
      each([&](ServeOptions& type, int64_t tp) {
        const int64_t room = type.most_replicas(tp), n = fixed > 0 ? std::min(fixed, room) : room;
        most = std::max(most, type.sustained_rate(tp) * static_cast<double>(n));
      });
    for (const ServeOption& o : options_) {
      if (!o.split) continue;
      for (int64_t n = 1; n * o.server.tp < o.devices_there; ++n) {
        const int64_t room = (o.devices_there - n * o.server.tp) / o.decoder.tp,
                      m = fixed > 0 ? std::min(fixed - n, room) : room;
        most =
            std::max(most, std::min(static_cast<double>(n) * o.server.rate, static_cast<double>(m) * o.decoder.rate));
      }
    }
    return most;
  }

  void lower_rate() {
    double most = most_rate();
    if (!(most > 0) || most >= q_.workload.rate) return;
    Workload slower = q_.workload;
    for (int i = 0; i < kTries; ++i, most *= 1 - kTryStep) {
      const double rate = rounded_down(most), stretch = slower.rate / rate;
      for (WorkloadRequest& r : slower.requests) r.arrival_s *= stretch;
      slower.rate = rate;
      const auto o = kept_with(slower);
      if (!o) continue;
      say("rate", q_.workload.rate / rate - 1, fmt::format("at most {:.3g} requests/s ({})", rate, layout_text(*o)));
      return;
    }
  }

  // What the objective could be with all the servers there is room for. Of pairs too: colocated servers, named.
  void looser_objective() {
    const ServeObjective asked = q_.spec.objective();
    ServePlanSpec changed = q_.spec;
    double least = 0, ttft = 0, itl = 0;
    each([&](ServeOptions& type, int64_t tp) {
      const int64_t room = type.most_replicas(tp), fixed = q_.spec.fixed_replicas(), n = fixed > 0 ? fixed : room;
      if (n > room || n < 1 || q_.workload.rate > type.capacity(tp) * static_cast<double>(n)) return;
      const ServeOption o = type.with_replicas(tp, n);
      if (o.stats.refused > 0) return;
      const double a = std::max(asked.ttft_s, o.stats.ttft_kept_s), b = std::max(asked.itl_s, o.stats.itl_kept_s),
                   change = std::max(a / asked.ttft_s, b / asked.itl_s) - 1;
      if (!(change > 0) || (least > 0 && least <= change)) return;
      least = change, ttft = a, itl = b;
    });
    if (!(least > 0)) return;
    if (q_.spec.serve_mode() == ServeMode::split) changed.mode = "colocated";
    for (int i = 0; i < kTries; ++i) {
      const double slack = i == 0 ? 1 : 1 + kTryStep * (1 << i);
      changed.serve.slo_ttft_ms = ttft > asked.ttft_s ? std::ceil(1000 * ttft * slack) : q_.spec.serve.slo_ttft_ms;
      changed.serve.slo_itl_ms = itl > asked.itl_s ? std::ceil(1000 * itl * slack) : q_.spec.serve.slo_itl_ms;
      const auto o = kept_with(changed);
      if (!o) continue;
      say("slo", least * slack,
          fmt::format("--slo-ttft-ms {} --slo-itl-ms {}{} ({})", changed.serve.slo_ttft_ms, changed.serve.slo_itl_ms,
                      changed.mode == q_.spec.mode ? "" : " --mode " + changed.mode, layout_text(*o)));
      return;
    }
  }

  // The least that one sequence fits in, and more where that is too little for the workload; at last no bound.
  void more_memory() {
    if (q_.spec.serve.memory == 0) return;
    int64_t least = INT64_MAX;
    for (const ServeOption& o : options_) least = std::min(least, o.server.memory.least);
    ServePlanSpec changed = q_.spec;
    for (int64_t memory = least, i = 0; i < 2 * kTries; memory *= 2, ++i) {
      changed.serve.memory = memory;
      const auto o = kept_with(changed);
      if (!o) continue;
      say("memory", 0, fmt::format("--memory {}Mi ({})", memory >> 20, layout_text(*o)));
      return;
    }
    changed.serve.memory = 0;
    if (const auto o = kept_with(changed)) say("memory", 0, fmt::format("no --memory ({})", layout_text(*o)));
  }

  int64_t length_limit() const {
    return q_.spec.serve.max_model_len > 0 ? q_.spec.serve.max_model_len : q_.model.max_position;
  }

  // Requests that can never run.
  void longer_context() {
    const int64_t longest = q_.workload.longest(), limit = length_limit();
    if (longest <= limit) return;
    Workload shorter = q_.workload;
    const auto n =
        std::erase_if(shorter.requests, [&](const WorkloadRequest& r) { return r.input + r.output > limit; });
    const double change = static_cast<double>(n) / static_cast<double>(q_.workload.requests.size());
    ServePlanSpec changed = q_.spec;
    changed.serve.max_model_len = longest;
    if (longest <= q_.model.max_position && kept_with(changed))
      say("context", change, fmt::format("--max-model-len {}: {} requests are longer than {}", longest, n, limit));
    else if (!shorter.requests.empty() && kept_with(shorter))
      say("context", change,
          fmt::format("a workload without its {} requests of more than {} tokens (the longest has {})", n, limit,
                      longest));
  }

  void shorter_context() {
    int64_t longest = 0;
    for (const ServeOption& o : options_) longest = std::max(longest, o.server.memory.max_context);
    if (longest == 0) return;
    const int64_t needed = q_.workload.longest();
    ServePlanSpec changed = q_.spec;
    changed.serve.max_model_len = needed <= longest ? std::max(needed, longest / 2) : longest;
    const auto o = kept_with(changed);
    if (!o) return;
    // Giving up what the workload does not use is next to nothing.
    say("context", needed <= longest ? 0 : static_cast<double>(length_limit()) / static_cast<double>(longest) - 1,
        fmt::format("--max-model-len {} ({}; the workload's longest request has {} tokens)",
                    changed.serve.max_model_len, layout_text(*o), needed));
  }

  // Weights of 8 and 4 bits are ranked as if they gave up 1 and 5 %.
  void smaller_weights() {
    if (q_.spec.serve.quantize != "none") return;
    for (const auto& [format, change] : {std::pair{"int8", 0.01}, {"int4", 0.05}}) {
      ServePlanSpec changed = q_.spec;
      changed.serve.quantize = format;
      const auto o = kept_with(changed);
      if (!o) continue;
      say("quantize", change, fmt::format("--quantize {} ({})", format, layout_text(*o)));
      return;
    }
  }

  const ServePlanQuery& q_;
  const std::vector<ServeOption>& options_;
  std::vector<std::unique_ptr<ServeOptions>> types_;
  std::vector<ServeAdvice> advice_;
};

}  // namespace

std::vector<ServeAdvice> serve_advice(const ServePlanQuery& query, const std::vector<ServeOption>& options) {
  return Adviser(query, options).run();
}

}  // namespace rw
