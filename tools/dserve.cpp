// dserve: serves a model; `dserve generate` continues one prompt, `dserve replay` checks a log of steps.
#include <cstring>

#include "libcore/device/arena.h"
#include "tools/cli.h"
#include "tools/dserve_generate.h"
#include "tools/dserve_replay.h"
#include "tools/dserve_serve.h"

namespace rw {
namespace {

int dserve(int argc, const char* const* argv) {
  if (argc > 1 && std::strcmp(argv[1], "generate") == 0) return dserve_generate(argc - 1, argv + 1);
  if (argc > 1 && std::strcmp(argv[1], "replay") == 0) return dserve_replay(argc - 1, argv + 1);
  return dserve_serve(argc, argv);
}

}  // namespace
}  // namespace rw

int main(int argc, char** argv) {
  rw::keep_freed_memory();
  return rw::run_tool("dserve", [&] { return rw::dserve(argc, argv); });
}
