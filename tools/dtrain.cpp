// dtrain: training in any layout under mpirun. `dtrain prepare` makes its token files.
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "kernels/ops.h"
#include "libcore/base/error.h"
#include "libcore/base/log.h"
#include "libcore/base/units.h"
#include "libcore/comm/agree.h"
#include "libcore/comm/comm.h"
#include "libcore/comm/rank_cores.h"
#include "libcore/comm/steps_comm.h"
#include "libcore/device/arena.h"
#include "libcore/device/device.h"
#include "libcore/device/open_device.h"
#include "libcore/spec/train_spec.h"
#include "libcore/train/dry_run.h"
#include "libcore/train/trainer.h"
#include "tools/cli.h"
#include "tools/dtrain_layout.h"
#include "tools/dtrain_prepare.h"
#include "tools/job_command_line.h"
#include "tools/progress.h"

namespace rw {
namespace {

constexpr const char* kFooter =
    "Subcommands:\n"
    "  dtrain prepare     turn text into a token file\n"
    "\n"
    "Examples:\n"
    "  mpirun -n 2 dtrain --model tiny-llama --data corpus.h5 --out runs/a --steps 100\n"
    "  mpirun -n 8 dtrain --config big.toml --tp 2 --sp --pp 2 --zero 1 --out runs/b\n"
    "  dtrain --model llama-3.1-405b --tp 8 --pp 16 --dp 128 --sp --dry-run\n"
    "  mpirun -n 2 dtrain --config configs/train/kjv.toml --data kjv.h5 --out runs/kjv --resume auto\n"
    "\n"
    "SIGUSR1 to mpirun (or SIGINT/SIGTERM to a rank) saves and exits 75: run the same command with --resume auto to go "
    "on.";

// What a person sees of a run: phases of the start, a bar while it trains, lines for what happens on the way.
class Screen {
 public:
  // The bar's heartbeat shows that a long phase of the start is alive.
  explicit Screen(const TrainSpec& spec) : log_every_(spec.log_every) { bar_.show("starting", -1, ""); }

  TrainObserver observer() {
    return {.phase = [this](const std::string& name,
                            double seconds) { line(fmt::format("start: {} {:.2f} s", name, seconds)); },
            .note = [this](const std::string& text) { line(text); },
            .warning = [this](const std::string& text) { bar_.clear(), log_warning("{}", text); },
            .step = [this](const StepReport& r) { step(r); }};
  }

 private:
  void line(const std::string& text) {
    bar_.clear();
    log_info("{}", text);
  }
  void step(const StepReport& r) {
    if (r.step % log_every_ != 0 && r.step != r.steps) return;
    bar_.show("training", static_cast<double>(r.step) / static_cast<double>(r.steps),
              fmt::format("step {}/{}, loss {:.4f}, lr {:.2e}, grad {:.2f}, {} tok/s, MFU {:.1f} %", r.step, r.steps,
                          r.loss, r.lr, r.grad_norm, format_count(r.tokens_per_s), 100 * r.mfu_causal));
  }

  int64_t log_every_;
  ProgressBar bar_;
};

// What the flags ask of the communicators themselves; null: nothing that is not so already.
std::unique_ptr<Comm> world_as_asked(const TrainSpec& spec, const Comm& world) {
  const std::vector<int> nodes = world.nodes();
  const bool several_nodes = std::any_of(nodes.begin(), nodes.end(), [&](int n) { return n != nodes[0]; });
  const bool chooses = spec.allreduce != "auto" || !spec.comm_table.empty();
  if (world.size() == 1 || (spec.ranks_per_node == 0 && !chooses && !several_nodes)) return nullptr;
  return make_world_comm({.ranks_per_node = static_cast<int>(spec.ranks_per_node),
                          .all_reduce = make_all_reduce_policy(spec.allreduce, spec.comm_table)});
}

int run_rank(int argc, const char* const* argv, Comm& launched) {
  TrainSpec spec;
  Json tables = Json::object();
  const CommandLine command{
      .name = "dtrain",
      .description = "Trains a language model; start it with mpirun, one rank per group of cores.",
      .fields = fields(spec),
      .skip_tables = {"plan", "predicted"},
      .skipped_tables = &tables,
      .footer = kFooter};
  if (const auto code = parse_job_command_line(command, argc, argv, launched)) return *code;
  if (tables.contains("plan")) spec.plan_table = tables["plan"].dump();
  if (tables.contains("predicted")) spec.predicted_table = tables["predicted"].dump();
  agree(launched, [&] { check_device_name(spec.device); });
  if (spec.layout_by == "auto") take_planned_layout(spec, launched);
  if (spec.dry_run) {
    agree(launched, [&] {
      const std::string report = dry_run_report(spec);
      if (launched.rank() == 0) fmt::print("{}\n", report);
    });
    return 0;
  }
  std::unique_ptr<Comm> asked;
  agree(launched, [&] { asked = world_as_asked(spec, launched); });
  Comm& world = asked != nullptr ? *asked : launched;
  agree(world, [&] { check_device({.device = spec.device, .local_rank = rank_on_host(world)}); });
  TrainSummary summary;
  if (world.rank() == 0) {
    Screen screen(spec);
    summary = train(spec, world, screen.observer());
  } else {
    summary = train(spec, world, {});
  }
  if (world.rank() == 0) {
    fmt::print("{}\n", summary.json);
    std::fflush(stdout);
    if (summary.interrupted)
      log_warning("interrupted after a clean save; run the same command with --resume auto to continue");
  }
  return summary.interrupted ? exit_code(ErrorKind::interrupted) : 0;
}

int dtrain(int argc, const char* const* argv) {
  if (argc > 1 && std::strcmp(argv[1], "prepare") == 0) return dtrain_prepare(argc - 1, argv + 1);
  const std::unique_ptr<Comm> world = make_world_comm();
  set_log_rank(world->rank(), world->size());
  return run_job("dtrain", *world, [&] { return run_rank(argc, argv, *world); });
}

}  // namespace
}  // namespace rw

int main(int argc, char** argv) {
  rw::keep_freed_memory();
  return rw::run_tool("dtrain", [&] { return rw::dtrain(argc, argv); });
}
