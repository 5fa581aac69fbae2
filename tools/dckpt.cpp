// dckpt: what is in this checkpoint, is it intact, give it to me in another format.
#include "tools/dckpt.h"

#include <cstdlib>

#include "libcore/base/error.h"
#include "tools/cli.h"
#include "tools/subcommands.h"

namespace {

// Every process of an MPI job would do the same work, and write over the others: rank 0 alone says so.
template <int (*kRun)(int, const char* const*)>
int alone(int argc, const char* const* argv) {
  const char* size = std::getenv("OMPI_COMM_WORLD_SIZE");
  if (size == nullptr || std::atoi(size) <= 1) return kRun(argc, argv);
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (rank != nullptr && std::atoi(rank) != 0) return 0;
  rw::fail(
      rw::ErrorKind::usage,
      "dckpt {} is a tool of a single process, found {} of them: start it without mpirun (only dckpt reshard shares "
      "its work among processes)",
      argv[0], size);
}

const rw::Subcommand kSubcommands[] = {
    {"ls", "the checkpoints of a run, one line a step: state, size, age, loss, layout", alone<rw::dckpt_ls>},
    {"show", "what a run, a checkpoint or a Hugging Face directory holds", alone<rw::dckpt_show>},
    {"verify", "compare every byte with its digest; exit code 3 when something is damaged", alone<rw::dckpt_verify>},
    {"convert", "a Hugging Face directory of a checkpoint, or a checkpoint of one", alone<rw::dckpt_convert>},
    {"reshard", "write a checkpoint anew in another layout, bit for bit; also under mpirun", rw::dckpt_reshard},
    {"diff", "what differs between two checkpoints; exit code 3 when tensors do", alone<rw::dckpt_diff>},
    {"prune", "remove old checkpoints of a run, and what interrupted saves left", alone<rw::dckpt_prune>},
    {"cp", "copy a checkpoint, comparing every byte with its digest", alone<rw::dckpt_cp>},
};

}  // namespace

int main(int argc, char** argv) {
  return rw::run_tool("dckpt", [&] { return rw::run_subcommand("dckpt", kSubcommands, argc, argv); });
}
