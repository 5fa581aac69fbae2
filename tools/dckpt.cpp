// dckpt: what is in this checkpoint, is it intact, give it to me in another format.
#include "tools/dckpt.h"

#include "tools/cli.h"
#include "tools/subcommands.h"

namespace {

const rw::Subcommand kSubcommands[] = {
    {"ls", "the checkpoints of a run, one line a step: state, size, age, loss, layout", rw::dckpt_ls},
    {"show", "what a run, a checkpoint or a Hugging Face directory holds", rw::dckpt_show},
    {"verify", "compare every byte with its digest; exit code 3 when something is damaged", rw::dckpt_verify},
    {"convert", "a Hugging Face directory of a checkpoint, or a checkpoint of one", rw::dckpt_convert},
    {"reshard", "write a checkpoint anew in another layout, bit for bit; also under mpirun", rw::dckpt_reshard},
    {"diff", "what differs between two checkpoints; exit code 3 when tensors do", rw::dckpt_diff},
    {"prune", "remove old checkpoints of a run, and what interrupted saves left", rw::dckpt_prune},
    {"cp", "copy a checkpoint, comparing every byte with its digest", rw::dckpt_cp},
};

}  // namespace

int main(int argc, char** argv) {
  return rw::run_tool("dckpt", [&] { return rw::run_subcommand("dckpt", kSubcommands, argc, argv); });
}
