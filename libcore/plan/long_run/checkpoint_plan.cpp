#include "libcore/plan/long_run/checkpoint_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "kernels/dtype.h"
#include "libcore/base/error.h"
#include "libcore/base/units.h"
#include "libcore/ckpt/interval.h"
#include "libcore/spec/param_table.h"
#include "libcore/train/layout_pieces.h"

namespace rw {
namespace {

// What each rank of a stage writes: its first rank's pieces, the others' being as large but for rounding.
std::vector<double> stage_bytes(const CheckpointQuery& q) {
  std::vector<double> bytes;
  for (int64_t s = 0; s < q.layout->pp; ++s) {
    double sum = 0;
    for (const TensorPiece& piece : layout_pieces({.model = q.model,
                                    .layout = *q.layout,
                                    .ranks_per_node = q.cluster.nodes.front().devices,
                                    .rank = s * q.layout->tp * q.layout->dp}))
      sum += static_cast<double>(piece.box.size() * dtype_bytes(piece.dtype));
    bytes.push_back(sum);
  }
  return bytes;
}

// Walks the nodes in the order of ranks: visit(node type, bytes of the node, most bytes of a rank in it).
template <typename Visit>
void for_each_node(const CheckpointQuery& q, const CheckpointPlan& plan, Visit visit) {
  const std::vector<double> of_stage =
      q.layout != nullptr ? stage_bytes(q) : std::vector<double>{plan.bytes / static_cast<double>(plan.ranks)};
  const int64_t stage_ranks = plan.ranks / static_cast<int64_t>(of_stage.size());
  int64_t rank = 0;
  for (const NodeType& node : q.cluster.nodes)
    for (int64_t i = 0; i < node.count && rank < plan.ranks; ++i) {
      double bytes = 0, most = 0;
      for (int64_t d = 0; d < node.devices && rank < plan.ranks; ++d, ++rank) {
        const double own = of_stage[static_cast<size_t>(rank / stage_ranks)];
        bytes += own;
        most = std::max(most, own);
      }
      visit(node, bytes, most);
    }
}

void price_writing(const CheckpointQuery& q, CheckpointPlan& plan) {
  const CheckpointTerms& t = q.terms;
  const bool needs_storage = t.bandwidth <= 0, needs_host = t.blocking < 0;
  const double shared = q.cluster.storage_bandwidth;
  if (!needs_storage) plan.write_s = plan.bytes / t.bandwidth;
  else if (shared > 0) plan.write_s = plan.bytes / shared;
  if (!needs_host) plan.blocking_s = t.blocking;
  for_each_node(q, plan, [&](const NodeType& node, double bytes, double most) {
    plan.largest_rank_bytes = std::max(plan.largest_rank_bytes, most);
    if (needs_storage && node.storage_bandwidth > 0)
      plan.write_s = std::max(plan.write_s, bytes / node.storage_bandwidth);
    else if (needs_storage && shared <= 0)
      fail(ErrorKind::usage,
           "{}: how fast checkpoints are written is unknown: expected storage-bandwidth of the cluster or of [[node]] "
           "{}, or --bandwidth BYTES_PER_SECOND",
           q.cluster.where, node.name);
    if (!needs_host) return;
    if (node.host_bandwidth <= 0)
      fail(ErrorKind::usage,
           "{}: how long a save stops the run is unknown: expected host-bandwidth of [[node]] {} (device to host "
           "memory, bytes/s), or --blocking SECONDS",
           q.cluster.where, node.name);
    plan.blocking_s = std::max(plan.blocking_s, most / node.host_bandwidth);
  });
  plan.sources["write_s"] = needs_storage ? "cluster" : "flag";
  plan.sources["blocking_s"] = needs_host ? "cluster" : "flag";
}

void count_failures(const CheckpointQuery& q, CheckpointPlan& plan) {
  if (q.tokens <= 0) return;
  if (q.layout == nullptr || plan.step_s <= 0)
    fail(ErrorKind::usage,
         "--tokens: the length of the training is unknown: expected --global-batch and --seq-len, or a plan with "
         "--config");
  plan.tokens = q.tokens;
  const double of_step = static_cast<double>(q.layout->global_batch * q.layout->seq_len);
  plan.training_s = q.tokens / of_step * plan.step_s / plan.goodput;
  plan.expected_failures = plan.training_s / plan.failures.mtbf_s;
}

}  // namespace

FieldList fields(CheckpointTerms& t) {
  return {{.name = "mtbf",
           .value = &t.mtbf,
           .help = "hours between failures of the whole job; 0: from the cluster's mtbf-hours",
           .min = 0,
           .group = "Checkpoint"},
          {.name = "bandwidth",
           .value = &t.bandwidth,
           .help = "bytes/s that the job writes to storage; 0: the cluster's storage-bandwidth",
           .min = 0,
           .group = "Checkpoint"},
          {.name = "blocking",
           .value = &t.blocking,
           .help = "seconds that a save stops the run; -1: the copy to host memory",
           .min = -1,
           .group = "Checkpoint"},
          {.name = "detect",
           .value = &t.detect,
           .help = "seconds until a failure is noticed",
           .min = 0,
           .group = "Checkpoint"},
          {.name = "restart",
           .value = &t.restart,
           .help = "seconds from there until training goes on",
           .min = 0,
           .group = "Checkpoint"},
          {.name = "step-time",
           .value = &t.step_time,
           .help = "seconds of a step; 0: predicted, with --global-batch or --config",
           .min = 0,
           .group = "Checkpoint"},
          {.name = "checkpoint-mode",
           .value = &t.mode,
           .help = "async: written behind the next steps; sync: training waits until each is committed",
           .choices = {"async", "sync"},
           .group = "Checkpoint"}};
}

double checkpoint_bytes(const ModelSpec& model) {
  constexpr int64_t kTensors = 3;  // masters, adam.m, adam.v
  return static_cast<double>(n_params(model) * kTensors * dtype_bytes(DType::f32));
}

CheckpointPlan plan_checkpoints(const CheckpointQuery& q) {
  const CheckpointTerms& t = q.terms;
  if (t.blocking < 0 && t.blocking != -1)
    fail(ErrorKind::usage, "--blocking {}: expected seconds of 0 or more, or -1 for the copy to host memory",
         t.blocking);
  CheckpointPlan plan;
  plan.params = n_params(q.model);
  plan.bytes = checkpoint_bytes(q.model);
  plan.ranks = q.layout != nullptr ? q.layout->ranks() : q.cluster.device_count();
  price_writing(q, plan);
  const bool sync = t.mode == "sync";
  plan.failures = {.interval_s = 0,
                   .cost_s = plan.blocking_s + (sync ? plan.write_s : 0),
                   .persist_s = sync ? 0 : plan.write_s,
                   .detect_s = t.detect,
                   .restart_s = t.restart,
                   .mtbf_s = t.mtbf > 0 ? t.mtbf * 3600 : job_mtbf_s(q.cluster, plan.ranks)};
  plan.sources["mtbf_s"] = t.mtbf > 0 ? "flag" : "cluster";
  plan.step_s = t.step_time > 0 ? t.step_time : q.step_s;
  if (plan.step_s > 0) plan.sources["step_s"] = t.step_time > 0 ? "flag" : "predicted";
  const CheckpointTerms usual;
  plan.sources["detect_s"] = t.detect == usual.detect ? "guess" : "flag";
  plan.sources["restart_s"] = t.restart == usual.restart ? "guess" : "flag";

  FailureTerms& f = plan.failures;
  const double background = sync ? 0 : plan.blocking_s + plan.write_s;
  plan.young_s = young_interval_s(f.cost_s, f.mtbf_s);
  if (plan.step_s > 0) {
    IntervalInputs inputs{.cost_s = f.cost_s, .background_s = background, .mtbf_s = f.mtbf_s, .step_s = plan.step_s};
    plan.interval_steps = optimal_interval_steps(inputs);
    if (background > 0) {
      inputs.background_s = 0;
      plan.write_decides = optimal_interval_steps(inputs) < plan.interval_steps;
    }
    f.interval_s = static_cast<double>(plan.interval_steps) * plan.step_s;
  } else {
    const double best = optimal_interval_s(f.cost_s, f.mtbf_s);
    f.interval_s = std::max({best, background, 1e-3});
    plan.write_decides = background > best;
  }
  plan.goodput = expected_goodput(f);
  plan.first_order_goodput = first_order_goodput(f);
  plan.lost_work_s = lost_work_s(f);
  count_failures(q, plan);
  return plan;
}

Json checkpoint_plan_json(const CheckpointPlan& p) {
  const FailureTerms& f = p.failures;
  const auto known = [](double v, bool is_known) { return is_known ? Json(v) : Json(); };
  return {{"params", p.params},
          {"ranks", p.ranks},
          {"bytes", static_cast<int64_t>(p.bytes)},
          {"largest_rank_bytes", static_cast<int64_t>(p.largest_rank_bytes)},
          {"write_s", p.write_s},
          {"blocking_s", p.blocking_s},
          {"cost_s", f.cost_s},
          {"persist_s", f.persist_s},
          {"detect_s", f.detect_s},
          {"restart_s", f.restart_s},
          {"mtbf_s", f.mtbf_s},
          {"step_s", known(p.step_s, p.step_s > 0)},
          {"interval_steps", p.step_s > 0 ? Json(p.interval_steps) : Json()},
          {"interval_s", f.interval_s},
          {"write_decides", p.write_decides},
          {"young_interval_s", p.young_s},
          {"goodput", p.goodput},
          {"first_order_goodput", p.first_order_goodput},
          {"lost_work_per_failure_s", p.lost_work_s},
          {"tokens", known(p.tokens, p.tokens > 0)},
          {"training_s", known(p.training_s, p.tokens > 0)},
          {"expected_failures", known(p.expected_failures, p.tokens > 0)},
          {"sources", p.sources}};
}

std::string checkpoint_plan_text(const CheckpointPlan& p) {
  const FailureTerms& f = p.failures;
  std::string text;
  const auto line = [&](const char* name, const std::string& value, const char* key = "") {
    const auto source = p.sources.find(key);
    text += fmt::format("{:<22}{}{}\n", name, value, source == p.sources.end() ? "" : " (" + source->second + ")");
  };
  line("checkpoint",
       fmt::format("{}, {} parameters x 12 bytes; at most {} a rank, {} ranks", format_bytes(p.bytes),
                   format_count(static_cast<double>(p.params)), format_bytes(p.largest_rank_bytes), p.ranks));
  line("written in", format_seconds(p.write_s), "write_s");
  line("stops the run for", fmt::format("{:.3g} s", p.blocking_s), "blocking_s");
  line("a failure every", format_seconds(f.mtbf_s), "mtbf_s");
  line("noticed after", format_seconds(f.detect_s), "detect_s");
  line("running again after", format_seconds(f.restart_s), "restart_s");
  if (p.step_s > 0) line("a step", fmt::format("{:.4g} s", p.step_s), "step_s");
  line("save every",
       fmt::format("{}{}; Young's sqrt(2 C M) is {}", p.step_s > 0 ? fmt::format("{} steps, ", p.interval_steps) : "",
                   format_seconds(f.interval_s), format_seconds(p.young_s)));
  if (p.write_decides)
    line("", "the time to write decides: a save waits until the one before is committed, which a step tells all ranks");
  line("a failure loses", format_seconds(p.lost_work_s) + " of training");
  line("goodput", fmt::format("{:.2f} % of the time is training that stands ({:.2f} % to first order)", 100 * p.goodput,
                              100 * p.first_order_goodput));
  if (p.tokens > 0)
    line("the whole training", fmt::format("{} tokens in {:.2f} days with {:.1f} failures", format_count(p.tokens),
                                           p.training_s / 86400, p.expected_failures));
  return text;
}

}  // namespace rw
