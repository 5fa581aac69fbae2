// Scaling answers for people and as JSON.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "libcore/base/units.h"
#include "libcore/plan/long_run/scale.h"

namespace rw {
namespace {

Json or_null(double v) { return std::isfinite(v) ? Json(v) : Json(); }

// What a growing term says about the run.
const char* meaning(const std::string& term) {
  if (term == "compute") return "a device's part of the batch makes smaller products, or more is computed again";
  if (term == "exposed_tp") return "tensor-parallel collectives";
  if (term == "exposed_pp") return "messages between pipeline stages";
  if (term == "exposed_dp") return "gradients and weights between replicas";
  if (term == "bubble") return "too few micro-batches a replica for the pipeline's stages";
  return "updates of weights that more devices do not share";
}

std::string knee_text(double n) { return std::isfinite(n) ? fmt::format("{:.4g}", n) : "never"; }

}  // namespace

Json scaling_fit_json(const ScalingFit& fit, double from) {
  return {{"growth", growth_name(fit.law.growth)},
          {"t1", fit.law.t1},
          {"p", fit.law.p},
          {"c", fit.law.c},
          {"best_n", or_null(fit.law.best_n())},
          {"best_speedup", or_null(fit.law.speedup(std::isfinite(fit.law.best_n()) ? fit.law.best_n() : 1e18))},
          {"knee_80", or_null(fit.law.knee(0.8, from))},
          {"knee_50", or_null(fit.law.knee(0.5, from))},
          {"error", fit.error},
          {"worst_error", fit.worst_error},
          {"other_growth_error", fit.other_error}};
}

std::string scaling_fit_text(const ScalingFit& fit, double from) {
  const ScalingLaw& law = fit.law;
  std::string text = fmt::format(
      "S(N) = 1 / ((1 - P) / N + P + {}): P = {:.3g}, c = {:.3g}; off by {:.1f} % on average, {:.1f} % at worst\n",
      growth_name(law.growth), law.p, law.c, 100 * fit.error, 100 * fit.worst_error);
  if (std::isfinite(law.best_n()))
    text += fmt::format("fastest at N* = {:.4g}, {:.4g} times one\n", law.best_n(), law.speedup(law.best_n()));
  text += fmt::format("the law's efficiency falls below 80 % of N = {:g} at {}, below 50 % at {}\n", from,
                      knee_text(law.knee(0.8, from)), knee_text(law.knee(0.5, from)));
  return text;
}

Json scale_json(const ScaleAnswer& answer) {
  Json rows = Json::array(), loss = Json::object();
  const auto from = static_cast<double>(answer.best_nodes);
  for (const ScaleRow& row : answer.rows)
    rows.push_back({{"nodes", row.nodes},
                    {"devices", row.devices},
                    {"global_batch", row.global_batch},
                    {"efficiency", row.plan ? Json(row.efficiency) : Json()},
                    {"plan", row.plan ? prediction_json(*row.plan) : Json()},
                    {"nothing_fits", row.nothing}});
  for (const ScaleLoss& l : answer.loss) loss[l.term] = l.share;
  return {{"rows", rows},
          {"best_nodes", answer.best_nodes > 0 ? Json(answer.best_nodes) : Json()},
          {"fit", answer.fit ? scaling_fit_json(*answer.fit, from) : Json()},
          {"below_80", answer.below_80 > 0 ? Json(answer.below_80) : Json()},
          {"below_50", answer.below_50 > 0 ? Json(answer.below_50) : Json()},
          {"bends_at", answer.bends_at > 0 ? Json(answer.bends_at) : Json()},
          {"loss", loss}};
}

std::string scale_text(const ScaleAnswer& answer) {
  std::string text = fmt::format("{:>6} {:>8} {:>8} {:>9} {:>10} {:>10} {:>6} {:>9}  {}\n", "nodes", "devices", "batch",
                                 "step s", "tokens/s", "efficiency", "MFU", "$/Mtok", "layout");
  const auto from = static_cast<double>(answer.best_nodes);
  for (const ScaleRow& row : answer.rows) {
    text += fmt::format("{:>6} {:>8} {:>8} ", row.nodes, row.devices, row.global_batch);
    if (!row.plan) {
      text += fmt::format("{:>9}  nothing fits: {}\n", "-", row.nothing);
      continue;
    }
    const Prediction& p = *row.plan;
    text += fmt::format("{:>9.4g} {:>10} {:>8.1f} % {:>6.1f} {:>9}  {}, micro-batch {}\n", p.step_s,
                        format_count(p.tokens_per_s), 100 * row.efficiency, 100 * p.mfu.causal,
                        p.cost_per_million_tokens > 0 ? fmt::format("{:.4f}", p.cost_per_million_tokens) : "-",
                        p.layout.text(), p.layout.micro_batch);
  }
  if (answer.fit) text += "\nN in nodes: " + scaling_fit_text(*answer.fit, from);
  else text += "\nno law: it takes three sizes from the most efficient one on\n";
  if (answer.below_80 > 0)
    text += fmt::format("efficiency is below 80 % from {} nodes on{}\n", answer.below_80,
                        answer.below_50 > 0 ? fmt::format(", below 50 % from {}", answer.below_50) : "");
  if (answer.loss.empty()) return text;
  text += fmt::format("what {} nodes lose against {:g}:\n", answer.bends_at, from);
  for (const ScaleLoss& l : answer.loss)
    if (std::abs(l.share) >= 0.01)
      text += fmt::format("  {:>6.1f} %  {}: {}\n", 100 * l.share, l.term, meaning(l.term));
  return text;
}

}  // namespace rw
