// dserve: so far `dserve generate`, one prompt from the command line.
#include <fmt/core.h>

#include <cstring>

#include "libcore/base/error.h"
#include "libcore/device/arena.h"
#include "tools/cli.h"
#include "tools/dserve_generate.h"

namespace rw {
namespace {

int dserve(int argc, const char* const* argv) {
  if (argc > 1 && std::strcmp(argv[1], "generate") == 0) return dserve_generate(argc - 1, argv + 1);
  const CommandLine command{
      .name = "dserve",
      .description = "Serves a language model.",
      .fields = {},
      .takes_config = false,
      .footer = "Subcommands:\n  dserve generate    continue one prompt; see dserve generate --help"};
  if (const auto code = parse_command_line(command, argc, argv)) return *code;
  fail(ErrorKind::usage, "expected a subcommand: generate; see --help");
}

}  // namespace
}  // namespace rw

int main(int argc, char** argv) {
  rw::keep_freed_memory();
  return rw::run_tool("dserve", [&] { return rw::dserve(argc, argv); });
}
