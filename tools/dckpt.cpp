// dckpt: what is in this checkpoint, is it intact, give it to me in another format.
#include "tools/dckpt.h"

#include <cstdio>
#include <string>
#include <vector>

#include "libcore/base/error.h"
#include "libcore/base/version.h"
#include "tools/cli.h"

namespace {

struct Subcommand {
  const char* name;
  const char* help;
  int (*run)(int, const char* const*);
};
const Subcommand kSubcommands[] = {
    {"show", "what a run, a checkpoint or a Hugging Face directory holds", rw::dckpt_show},
    {"verify", "compare every byte with its digest; exit code 3 when something is damaged", rw::dckpt_verify},
    {"convert", "write a Hugging Face directory that transformers and dserve load", rw::dckpt_convert},
};

std::string usage() {
  std::string text = "Usage: dckpt SUBCOMMAND [--help] ...\n\nSubcommands:\n";
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
  if (first.empty()) rw::fail(rw::ErrorKind::usage, "expected a subcommand (show, verify, convert); see --help");
  const std::string near = rw::nearest(first, known);
  rw::fail(rw::ErrorKind::usage, "unknown subcommand {}{}; see --help", first,
           near.empty() ? "" : ", did you mean " + near + "?");
}

}  // namespace

int main(int argc, char** argv) {
  return rw::run_tool("dckpt", [&] { return run(argc, argv); });
}
