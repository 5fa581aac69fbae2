// dplan train: ranked layouts of a training, the best as a file for `dtrain --config`.
#include <fmt/core.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/log.h"
#include "libcore/base/units.h"
#include "libcore/plan/search/exact.h"
#include "libcore/plan/search/plan_spec.h"
#include "tools/cli.h"
#include "tools/dplan.h"

namespace rw {
namespace {

constexpr const char* kFooter =
    "Examples:\n"
    "  dplan train --model llama-3-8b --cluster h100-sxm --nodes 4 --global-batch 512 --seq-len 4096\n"
    "  dplan train --model llama-2-13b --cluster roce-4x8 --global-batch 512 --micro-batch 8 -o plan.toml\n"
    "  dplan train --model tiny-llama --cluster cpu-2core --global-batch 8 -o - | mpirun -n 2 dtrain --config - ...\n"
    "\n"
    "Exit code 3: nothing fits; the last line says what would.";

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

void print_plans(const PlanInputs& in, const PlanAnswer& answer, std::FILE* to) {
  const bool priced = answer.plans.front().cost_per_million_tokens > 0;
  fmt::print(to, "{:>2} {:>9} {:>9} {:>6} {:>6} {:>10} {:>7} {:>7} {:>7} {:>7}{}  layout\n", "", "step s", "tokens/s",
             "MFU", "HFU", "memory", "bubble", "tp", "pp", "dp", priced ? "    $/Mtok" : "");
  int n = 0;
  for (const Prediction& p : answer.plans) {
    const auto share = [&](double s) { return percent(s / p.step_s); };
    fmt::print(to, "{:>2} {:>9.4g} {:>9} {:>6} {:>6} {:>10} {:>7} {:>7} {:>7} {:>7}{}  {}, micro-batch {}\n", ++n,
               p.step_s, fmt::format("{:.0f}", p.tokens_per_s), fmt::format("{:.1f}", 100 * p.mfu.causal),
               fmt::format("{:.1f}", 100 * p.mfu.hardware), format_bytes(p.memory.total()), share(p.time.bubble),
               share(p.time.exposed_tp), share(p.time.exposed_pp), share(p.time.exposed_dp),
               priced ? fmt::format("{:>10.4f}", p.cost_per_million_tokens) : "", p.layout.text(),
               p.layout.micro_batch);
  }
  const Prediction& best = answer.plans.front();
  fmt::print(
      to,
      "MFU and HFU in % (causal attention; HFU counts what is computed again); bubble, tp, pp, dp: shares of the "
      "step that are idle or exposed communication.\n");
  fmt::print(to, "1: stage {} takes most memory, {} of {}:", best.worst_stage, format_bytes(best.memory.total()),
             format_bytes(best.device_bytes));
  for (size_t o = 0; o < best.memory.bytes.size(); ++o)
    if (best.memory.bytes[o] > 0)
      fmt::print(to, " {} {},", memory_owner_name(static_cast<MemoryOwner>(o)), format_bytes(best.memory.bytes[o]));
  fmt::print(to, " expected error of its time {:.0f} % ({})\n", 100 * best.error_bar, provenance_name(best.provenance));
  if (in.spec().tokens > 0)
    fmt::print(to, "1: {} tokens take {:.1f} days{}\n", format_count(in.spec().tokens),
               in.spec().tokens / best.tokens_per_s / 86400,
               priced ? fmt::format(" and cost ${:.0f}", best.cost_per_million_tokens * in.spec().tokens / 1e6) : "");
  if (!answer.rejected.empty()) fmt::print(to, "Why not:\n");
  for (const Rejected& r : answer.rejected) fmt::print(to, "  {}: {}\n", r.change, r.reason);
}

}  // namespace

int dplan_train(int argc, const char* const* argv) {
  PlanSpec spec;
  std::string output;
  bool json = false, explained = false;
  FieldList list = fields(spec);
  list.push_back({.name = "output",
                  .value = &output,
                  .help = "write the best plan as TOML for dtrain --config; - is standard output",
                  .group = "Output"});
  list.push_back({.name = "json", .value = &json, .help = "one JSON object instead of the table", .group = "Output"});
  list.push_back({.name = "explain",
                  .value = &explained,
                  .help = "say which limit decided, by planning without it",
                  .group = "Output"});
  const CommandLine command{.name = "dplan train",
                            .description = "Ranks the layouts of a training over a cluster.",
                            .fields = list,
                            .short_flags = {{"-o", "output"}},
                            .footer = kFooter};
  if (const auto code = parse_command_line(command, argc, argv)) return *code;
  const PlanInputs inputs(spec);
  const PlanQuestion question = inputs.question();
  PlanAnswer answer = search_plans(question, spec.top);
  if (!answer.plans.empty()) take_exact_memory(question, answer.plans.front());
  const bool to_stdout = output == "-";
  if (!output.empty() && !answer.plans.empty()) {
    const std::string toml = plan_toml(inputs, answer.plans.front());
    if (to_stdout) fmt::print("{}", toml);
    else write_file_atomic(output, toml);
  }
  const std::vector<std::string> reasons = explained ? explain(question, answer) : std::vector<std::string>{};
  if (json && !to_stdout) {
    Json out = plan_answer_json(inputs, answer);
    if (explained) out["explain"] = reasons;
    fmt::print("{}\n", out.dump());
  } else if (!answer.plans.empty()) {
    std::FILE* to = to_stdout ? stderr : stdout;
    print_plans(inputs, answer, to);
    for (const std::string& line : reasons) fmt::print(to, "{}\n", line);
  }
  if (!answer.plans.empty()) return 0;
  log_error("nothing fits on {} devices of {}: {}", inputs.cluster().device_count(), inputs.cluster().name,
            answer.nothing_fits);
  log_error("what would: {}", answer.remedy);
  return exit_code(ErrorKind::verdict);
}

}  // namespace rw
