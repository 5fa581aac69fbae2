#include "tools/dtrain_layout.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/base/log.h"
#include "libcore/comm/agree.h"
#include "libcore/plan/measure/measured_cluster.h"
#include "libcore/plan/search/exact.h"
#include "libcore/plan/search/plan_spec.h"

namespace rw {
namespace {

// What the planner decides must not be decided beside it.
void check_left_open(const TrainSpec& spec) {
  const TrainSpec untouched;
  const auto differs = [&](const auto TrainSpec::*member, const char* flag) {
    if (spec.*member != untouched.*member)
      fail(ErrorKind::usage, "--layout auto decides --{}; leave it out, or give the layout by flags", flag);
  };
  differs(&TrainSpec::tp, "tp");
  differs(&TrainSpec::pp, "pp");
  differs(&TrainSpec::vpp, "vpp");
  differs(&TrainSpec::dp, "dp");
  differs(&TrainSpec::sp, "sp");
  differs(&TrainSpec::zero, "zero");
  differs(&TrainSpec::zero_group, "zero-group");
  differs(&TrainSpec::recompute, "recompute");
  differs(&TrainSpec::recompute_layers, "recompute-layers");
  differs(&TrainSpec::schedule, "schedule");
  differs(&TrainSpec::stage_layers, "stage-layers");
  if (spec.device != untouched.device && spec.cluster.empty())
    fail(ErrorKind::usage,
         "--layout auto on --device {} needs --cluster, a file that says what the devices can do: dplan discover "
         "writes one there, and configs/clusters has some (h100-sxm)",
         spec.device);
}

ClusterSpec noted_cluster(const TrainSpec& spec, Comm& world) {
  const Discovered found = measured_cluster(static_cast<int>(std::max<int64_t>(1, spec.threads)), world);
  for (const std::string& note : found.notes)
    if (world.rank() == 0) log_info("plan: {}", note);
  return found.cluster;
}

}  // namespace

void take_planned_layout(TrainSpec& spec, Comm& world) {
  Json tables = Json::object();
  agree(world, [&] { check_left_open(spec); });
  const ClusterSpec measured = spec.cluster.empty() ? noted_cluster(spec, world) : ClusterSpec{};
  agree(world, [&] {
    if (world.rank() != 0) return;
    PlanSpec asked;
    asked.model = spec.model;
    asked.global_batch = spec.global_batch;
    asked.seq_len = spec.seq_len;
    asked.precision = spec.precision;
    asked.threads = std::max<int64_t>(1, spec.threads);
    asked.backend = spec.device == "cpu" ? "cpu" : "accelerator";
    const PlanInputs inputs(asked, spec.cluster.empty() ? measured : load_cluster_spec(spec.cluster));
    PlanQuestion question = inputs.question();
    question.ranks = world.size();
    if (question.ranks > inputs.cluster().device_count())
      fail(ErrorKind::usage, "--layout auto: {} ranks, but the cluster {} has {} devices", question.ranks,
           inputs.cluster().name, inputs.cluster().device_count());
    PlanAnswer answer = search_plans(question, 1);
    if (answer.plans.empty())
      fail(ErrorKind::verdict, "--layout auto: nothing fits on {} ranks: {}{}", question.ranks, answer.nothing_fits,
           answer.remedy.empty() ? "" : "; what would: " + answer.remedy);
    take_exact_memory(question, answer.plans.front());
    const std::string device = spec.device;  // the cluster's kind does not decide where this run is
    read_toml(fields(spec), plan_toml(inputs, answer.plans.front()), "the plan", {"plan", "predicted"}, &tables);
    spec.device = device;
    log_info("plan: {}, micro-batch {}", answer.plans.front().layout.text(), answer.plans.front().layout.micro_batch);
  });
  spec.layout_by = "flags";
  const std::string toml = world.broadcast_text(world.rank() == 0 ? write_toml(fields(spec)) : "", 0);
  if (world.rank() != 0) return read_toml(fields(spec), toml, "rank 0's plan", {});
  spec.plan_table = tables["plan"].dump();
  spec.predicted_table = tables["predicted"].dump();
}

}  // namespace rw
