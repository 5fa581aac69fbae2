// dplan: how to split a model over a cluster, what fits, how fast it will be and what it will cost.
#include "tools/dplan.h"

#include "tools/cli.h"
#include "tools/subcommands.h"

namespace {

const rw::Subcommand kSubcommands[] = {
    {"train", "the best layouts of a training over a cluster, and why not others", rw::dplan_train},
    {"memory", "a layout's memory by rank and owner, and what makes it fit", rw::dplan_memory},
    {"schedule", "a pipeline's timeline drawn, with the memory under it", rw::dplan_schedule},
    {"scale", "how a training's speed grows with nodes, and what bends it", rw::dplan_scale},
    {"place", "which device each rank gets: rank files, host files, environments", rw::dplan_place},
    {"ckpt", "how often to save, and the goodput that is left", rw::dplan_ckpt},
    {"serve", "how to serve a workload within its latencies, and for how much", rw::dplan_serve},
    {"discover", "a cluster file for this machine", rw::dplan_discover},
    {"calibrate", "a cluster's achievable fractions and links, fitted to runs", rw::dplan_calibrate},
};

}  // namespace

int main(int argc, char** argv) {
  return rw::run_tool("dplan", [&] { return rw::run_subcommand("dplan", kSubcommands, argc, argv); });
}
