// dbench: how fast is it, is that what was promised, and if not, why.
#include "tools/dbench.h"

#include "libcore/device/arena.h"
#include "tools/cli.h"
#include "tools/subcommands.h"

namespace {

const rw::Subcommand kSubcommands[] = {
    {"comm", "collectives of this job's ranks, and the table that picks their algorithms; under mpirun",
     rw::dbench_comm},
    {"kernels", "every op at a model's shapes: time, FLOP/s, GB/s, share of the roofline", rw::dbench_kernels},
};

}  // namespace

int main(int argc, char** argv) {
  // As the trainer does: fresh pages cost more than the collectives.
  rw::keep_freed_memory();
  return rw::run_tool("dbench", [&] { return rw::run_subcommand("dbench", kSubcommands, argc, argv); });
}
