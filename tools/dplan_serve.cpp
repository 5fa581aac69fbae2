// dplan serve: how to serve a workload within an objective, by simulating the server.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/plan/serve/serve_plan.h"
#include "tools/cli.h"
#include "tools/dplan.h"

namespace rw {
namespace {

constexpr const char* kFooter =
    "Examples:\n"
    "  dplan serve --model llama-3-8b --cluster h100-sxm --nodes 1 --workload in=1024,out=256,rate=4 \\\n"
    "    --slo-ttft-ms 500 --slo-itl-ms 50 --max-num-seqs 256\n"
    "  dplan serve --model llama-3-70b --cluster h100-sxm --workload trace.jsonl --slo-ttft-ms 2000 --slo-itl-ms 100 "
    "\\\n"
    "    --itl-of mean --mode split --json\n"
    "\n"
    "Exit code 3: no option keeps the objective; the last lines say what would.";

}  // namespace

int dplan_serve(int argc, const char* const* argv) {
  ServePlanSpec spec;
  bool json = false;
  FieldList list = fields(spec);
  list.push_back({.name = "json", .value = &json, .help = "one JSON object instead of the table", .group = "Output"});
  const CommandLine command{.name = "dplan serve",
                            .description =
                                "Compares ways to serve a workload within an objective, by running the server's own "
                                "scheduler on a virtual clock.",
                            .fields = list,
                            .required = {"model", "cluster", "workload", "slo-ttft-ms", "slo-itl-ms"},
                            .footer = kFooter};
  if (const auto code = parse_command_line(command, argc, argv)) return *code;
  check_serve_plan_spec(spec);
  const ModelSpec model = load_model_spec(spec.serve.model);
  ClusterSpec cluster = load_cluster_spec(spec.cluster);
  if (spec.nodes > 0) set_node_count(cluster, spec.nodes);
  const Workload workload = load_workload(spec.workload, static_cast<uint64_t>(spec.seed));
  const ServePlanQuery query{.model = model, .cluster = cluster, .workload = workload, .spec = spec};
  const ServePlan plan = plan_serving(query);
  if (json) fmt::print("{}\n", serve_plan_json(query, plan).dump());
  else fmt::print("{}", serve_plan_text(query, plan));
  if (plan.feasible()) return 0;
  fail(ErrorKind::verdict, "no option keeps the objective for {:.4g} % of the requests{}", 100 * spec.attainment,
       plan.advice.empty() ? "" : "; would keep it: " + plan.advice.front().text);
}

}  // namespace rw
