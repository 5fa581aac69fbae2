// dbench: how fast is it, is that what was promised, and if not, why.
#include "tools/dbench.h"

#include <cstdio>
#include <string>
#include <vector>

#include "libcore/base/error.h"
#include "libcore/base/version.h"
#include "libcore/device/arena.h"
#include "tools/cli.h"

namespace {

struct Subcommand {
  const char* name;
  const char* help;
  int (*run)(int, const char* const*);
};
const Subcommand kSubcommands[] = {
    {"comm", "collectives of this job's ranks, and the table that picks their algorithms; under mpirun",
     rw::dbench_comm},
    {"kernels", "every op at a model's shapes: time, FLOP/s, GB/s, share of the roofline", rw::dbench_kernels},
};

std::string usage() {
  std::string text = "Usage: dbench SUBCOMMAND [--help] ...\n\nSubcommands:\n";
  for (const Subcommand& s : kSubcommands)
    text += "  " + std::string(s.name) + std::string(10 - std::string(s.name).size(), ' ') + s.help + "\n";
  return text;
}

int run(int argc, const char* const* argv) {
  const std::string first = argc > 1 ? argv[1] : "";
  if (first == "--help" || first == "-h") return std::fputs(usage().c_str(), stdout), 0;
  if (first == "--version") return std::printf("rankwright %s\n", rw::version()), 0;
  std::vector<std::string> known;
  for (const Subcommand& s : kSubcommands) {
    if (first == s.name) return s.run(argc - 1, argv + 1);
    known.push_back(s.name);
  }
  if (first.empty()) rw::fail(rw::ErrorKind::usage, "expected a subcommand (comm, kernels); see --help");
  const std::string near = rw::nearest(first, known);
  rw::fail(rw::ErrorKind::usage, "unknown subcommand {}{}; see --help", first,
           near.empty() ? "" : ", did you mean " + near + "?");
}

}  // namespace

int main(int argc, char** argv) {
  // As the trainer does: fresh pages cost more than the collectives.
  rw::keep_freed_memory();
  return rw::run_tool("dbench", [&] { return run(argc, argv); });
}
