#include "libcore/plan/serve/serve_plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "libcore/base/error.h"

namespace rw {
namespace {

// What people type for a rate: three digits, rounded down so that it is sustained.
double rounded_down(double rate) {
  const double unit = std::pow(10.0, std::floor(std::log10(rate)) - 2);
  return std::floor(rate / unit + 1e-9) * unit;
}

// Of what servers do at most, what they are loaded with where latency is to stay in bounds.
constexpr double kSafeLoad = 0.7;
// Of the objective, what a step may take: the estimate that cuts the chunks is not exact.
constexpr double kBudgetShare = 0.8;

class Search {
 public:
  explicit Search(const ServePlanQuery& query) : q_(query) {
    for (size_t t = 0; t < q_.cluster.nodes.size(); ++t) types_.push_back(std::make_unique<ServeOptions>(q_, t));
  }

  ServePlan run() {
    ServePlan plan;
    const ServeMode mode = q_.spec.serve_mode();
    if (mode != ServeMode::split)
      each([&](ServeOptions& type, int64_t tp) { plan.options.push_back(type.colocated(tp)); });
    if (mode != ServeMode::colocated && q_.spec.fixed_replicas() != 1)
      for (const auto& type : types_)
        for (ServeOption& o : type->split()) plan.options.push_back(std::move(o));
    if (plan.options.empty() &&
        mode == ServeMode::split)  // of which no pair keeps the objective: what there is of each
      each([&](ServeOptions& type, int64_t tp) { plan.options.push_back(type.colocated(tp)); });
    rank_options(plan.options);
    if (!plan.feasible()) advise(plan);
    return plan;
  }

 private:
  void each(const auto& body) {
    for (const auto& type : types_)
      for (const int64_t tp : type->tps()) body(*type, tp);
  }

  void advise(ServePlan& plan) {
    more_servers(plan);
    lower_rate(plan);
    looser_objective(plan);
    shorter_context(plan);
    longer_context(plan);
    other_settings(plan);
    std::stable_sort(plan.advice.begin(), plan.advice.end(),
                     [](const ServeAdvice& a, const ServeAdvice& b) { return a.change < b.change; });
  }

  // Options that keep the objective with more devices than there are, or more replicas than were asked for.
  void more_servers(ServePlan& plan) {
    const ServeOption* least = nullptr;
    for (const ServeOption& o : plan.options)
      if (o.stats.attainment >= q_.spec.attainment && !o.feasible && (least == nullptr || o.devices < least->devices))
        least = &o;
    if (least != nullptr) {
      const NodeType& node = node_named(least->node);
      const int64_t nodes = (least->devices + node.devices - 1) / node.devices;
      plan.advice.push_back(
          {.kind = "nodes",
           .text = fmt::format("--nodes {} ({}; there are {})", nodes, layout_text(*least), node.count),
           .change = ratio(nodes, node.count)});
    }
    const int64_t fixed = q_.spec.fixed_replicas();
    if (fixed == 0) return;
    std::optional<ServeAdvice> best;
    each([&](ServeOptions& type, int64_t tp) {
      const ServeOption o = type.with_replicas(tp, 0);
      if (!o.feasible) return;
      const double change = ratio(o.server.replicas, fixed);
      if (best && best->change <= change) return;
      best = {.kind = "replicas",
              .text = fmt::format("--replicas {} of --tp {} ({} devices)", o.server.replicas, tp, o.devices),
              .change = change};
    });
    if (best) plan.advice.push_back(*best);
  }

  // What the servers there is room for sustain.
  void lower_rate(ServePlan& plan) {
    double most = 0;
    int64_t most_tp = 0;
    each([&](ServeOptions& type, int64_t tp) {
      const int64_t fixed = q_.spec.fixed_replicas(), room = type.most_replicas(tp);
      const double rate = type.sustained_rate(tp) * static_cast<double>(fixed > 0 ? std::min(fixed, room) : room);
      if (rate <= most) return;
      most = rate;
      most_tp = tp;
    });
    if (!(most > 0) || most >= q_.workload.rate) return;
    plan.advice.push_back({.kind = "rate",
                           .text = fmt::format("at most {:.3g} requests/s (--tp {})", rounded_down(most), most_tp),
                           .change = q_.workload.rate / most - 1});
  }

  // What the objective could be with all the servers there is room for, or with as many as keep up.
  void looser_objective(ServePlan& plan) {
    std::optional<ServeAdvice> best;
    const ServeObjective asked = q_.spec.objective();
    each([&](ServeOptions& type, int64_t tp) {
      const double capacity = type.capacity(tp);
      if (!(capacity > 0)) return;
      const int64_t fixed = q_.spec.fixed_replicas(), there = fixed > 0 ? fixed : type.most_replicas(tp),
                    n = std::max(there, static_cast<int64_t>(std::ceil(q_.workload.rate / (kSafeLoad * capacity))));
      const ServeOption o = type.with_replicas(tp, n);
      if (o.stats.refused > 0) return;
      const double ttft = std::max(asked.ttft_s, o.stats.ttft_kept_s), itl = std::max(asked.itl_s, o.stats.itl_kept_s);
      const double change = std::max({ttft / asked.ttft_s - 1, itl / asked.itl_s - 1, ratio(n, there)});
      if (best && best->change <= change) return;
      best = {
          .kind = "slo",
          .text = fmt::format("--slo-ttft-ms {} --slo-itl-ms {} ({}{})", std::ceil(1000 * ttft), std::ceil(1000 * itl),
                              layout_text(o), n > there ? fmt::format(", {} devices", o.devices) : ""),
          .change = change};
    });
    if (best) plan.advice.push_back(*best);
  }

  // Requests that can never run.
  void longer_context(ServePlan& plan) {
    const int64_t longest = q_.workload.longest(),
                  limit = q_.spec.serve.max_model_len > 0 ? q_.spec.serve.max_model_len : q_.model.max_position;
    if (longest <= limit) return;
    const auto& all = q_.workload.requests;
    const auto n =
        std::count_if(all.begin(), all.end(), [&](const WorkloadRequest& r) { return r.input + r.output > limit; });
    plan.advice.push_back(
        {.kind = "context",
         .text = longest <= q_.model.max_position
                     ? fmt::format("--max-model-len {}: {} requests are longer than {}", longest, n, limit)
                     : fmt::format("a workload without its {} requests of more than {} tokens (the longest has {})", n,
                                   limit, longest),
         .change = static_cast<double>(n) / static_cast<double>(all.size())});
  }

  void shorter_context(ServePlan& plan) {
    const bool none_fits = std::all_of(plan.options.begin(), plan.options.end(),
                                       [](const ServeOption& o) { return !o.server.memory.fault.empty(); });
    if (!none_fits) return;
    int64_t longest = 0, tp = 0;
    for (const ServeOption& o : plan.options)
      if (o.server.memory.max_context > longest) longest = o.server.memory.max_context, tp = o.server.tp;
    if (longest == 0) return;
    const int64_t needed = q_.workload.longest();
    const auto asked =
        static_cast<double>(q_.spec.serve.max_model_len > 0 ? q_.spec.serve.max_model_len : q_.model.max_position);
    plan.advice.push_back(
        {.kind = "context",
         .text = fmt::format("--max-model-len {} (--tp {}; the workload's longest request has {} tokens)",
                             needed <= longest ? std::max(needed, longest / 2) : longest, tp, needed),
         // Giving up what the workload does not use is next to nothing.
         .change = needed <= longest ? 0 : asked / static_cast<double>(longest) - 1});
  }

  // What costs nothing or little: chunks of prompts that leave the running streams their rhythm, degrees that were not
  // asked for, smaller weights; of each the first that keeps the objective. Weights of 8 and 4 bits are ranked as if
  // they gave up 1 and 5 %.
  void other_settings(ServePlan& plan) {
    if (q_.spec.serve.itl_budget_ms == 0) {
      ServePlanSpec paced = q_.spec;
      paced.serve.itl_budget_ms = kBudgetShare * q_.spec.serve.slo_itl_ms;
      if (const auto o = feasible_with(paced))
        plan.advice.push_back(
            {.kind = "itl-budget",
             .text = fmt::format("--itl-budget-ms {:.3g} ({})", paced.serve.itl_budget_ms, layout_text(*o)),
             .change = 0});
    }
    if (!q_.spec.tps().empty()) {
      ServePlanSpec any = q_.spec;
      any.tp = "auto";
      if (const auto o = feasible_with(any))
        plan.advice.push_back({.kind = "tp", .text = fmt::format("{}", layout_text(*o)), .change = 0});
    }
    if (q_.spec.serve.quantize != "none") return;
    for (const char* format : {"int8", "int4"}) {
      ServePlanSpec smaller = q_.spec;
      smaller.serve.quantize = format;
      const auto o = feasible_with(smaller);
      if (!o) continue;
      plan.advice.push_back({.kind = "quantize",
                             .text = fmt::format("--quantize {} ({})", format, layout_text(*o)),
                             .change = std::string_view(format) == "int8" ? 0.01 : 0.05});
      return;
    }
  }

  std::optional<ServeOption> feasible_with(const ServePlanSpec& spec) const {
    std::vector<ServeOption> options;
    const ServePlanQuery query{.model = q_.model, .cluster = q_.cluster, .workload = q_.workload, .spec = spec};
    for (size_t t = 0; t < q_.cluster.nodes.size(); ++t) {
      ServeOptions type(query, t);
      for (const int64_t tp : type.tps()) options.push_back(type.colocated(tp));
    }
    rank_options(options);
    if (options.empty() || !options.front().feasible) return {};
    return options.front();
  }

  static double ratio(int64_t needed, int64_t there) {
    return static_cast<double>(needed) / static_cast<double>(std::max<int64_t>(there, 1)) - 1;
  }
  static std::string layout_text(const ServeOption& o) {
    if (o.split)
      return fmt::format("{} prefill servers of tp {} and {} decode servers of tp {}", o.server.replicas, o.server.tp,
                         o.decoder.replicas, o.decoder.tp);
    return fmt::format("{} replicas of tp {}", o.server.replicas, o.server.tp);
  }
  const NodeType& node_named(const std::string& name) const {
    return *std::find_if(q_.cluster.nodes.begin(), q_.cluster.nodes.end(),
                         [&](const NodeType& n) { return n.name == name; });
  }

  const ServePlanQuery& q_;
  std::vector<std::unique_ptr<ServeOptions>> types_;
};

}  // namespace

ServePlan plan_serving(const ServePlanQuery& query) { return Search(query).run(); }

}  // namespace rw
