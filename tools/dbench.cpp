// dbench: how fast is it, is that what was promised, and if not, why.
#include "tools/dbench.h"

#include "libcore/device/arena.h"
#include "tools/cli.h"
#include "tools/subcommands.h"

namespace {

const rw::Subcommand kSubcommands[] = {
    {"baseline", "keeps records as what later ones are compared with, by machine", rw::dbench_baseline},
    {"ckpt", "what saving and reading a checkpoint costs, beside raw files; under mpirun", rw::dbench_ckpt},
    {"comm", "collectives of this job's ranks, and the table that picks their algorithms; under mpirun",
     rw::dbench_comm},
    {"compare", "better, same, worse or too noisy than before: exit 3 on a regression", rw::dbench_compare},
    {"cost", "what a training run or a served load cost, a million tokens and in all", rw::dbench_cost},
    {"doctor", "what is wrong with a run, a server or a heap of logs, and what to do: exit 3 on a failure",
     rw::dbench_doctor},
    {"kernels", "every op at a model's shapes: time, FLOP/s, GB/s, share of the roofline", rw::dbench_kernels},
    {"preflight", "looks over a job's hosts before a long run: pass, warn, fail; under mpirun", rw::dbench_preflight},
    {"report", "runs and measurements as one self-contained HTML page", rw::dbench_report},
    {"serve", "loads an OpenAI-compatible server: what its users felt, and the rate it can take", rw::dbench_serve},
    {"storage", "large and small files of a folder's file system, by many ranks; under mpirun", rw::dbench_storage},
    {"train", "training steps, memory and counts beside their prediction; a ladder of strategies, a sweep over ranks",
     rw::dbench_train},
    {"validate", "the small check before a big deployment: train, serve, in parallel, scaled up", rw::dbench_validate},
};

}  // namespace

int main(int argc, char** argv) {
  // As the trainer does: fresh pages cost more than the collectives.
  rw::keep_freed_memory();
  return rw::run_tool("dbench", [&] { return rw::run_subcommand("dbench", kSubcommands, argc, argv); });
}
