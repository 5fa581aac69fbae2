// dplan: how to split a model over a cluster, what fits, how fast it will be and what it will cost.
#include "tools/dplan.h"

#include "tools/cli.h"
#include "tools/subcommands.h"

namespace {

const rw::Subcommand kSubcommands[] = {
    {"train", "the best layouts of a training over a cluster, and why not others", rw::dplan_train},
    {"calibrate", "a cluster's achievable fractions and links, fitted to runs", rw::dplan_calibrate},
};

}  // namespace

int main(int argc, char** argv) {
  return rw::run_tool("dplan", [&] { return rw::run_subcommand("dplan", kSubcommands, argc, argv); });
}
