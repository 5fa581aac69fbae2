// dckpt: what is in this checkpoint, is it intact, give it to me in another format.
#include "tools/dckpt.h"

#include "tools/cli.h"
#include "tools/subcommands.h"

namespace {

const rw::Subcommand kSubcommands[] = {
    {"show", "what a run, a checkpoint or a Hugging Face directory holds", rw::dckpt_show},
    {"verify", "compare every byte with its digest; exit code 3 when something is damaged", rw::dckpt_verify},
    {"convert", "write a Hugging Face directory that transformers and dserve load", rw::dckpt_convert},
};

}  // namespace

int main(int argc, char** argv) {
  return rw::run_tool("dckpt", [&] { return rw::run_subcommand("dckpt", kSubcommands, argc, argv); });
}
