#include "tools/subcommands.h"

#include <cstdio>
#include <string>
#include <vector>

#include "libcore/base/error.h"
#include "libcore/base/fields.h"
#include "libcore/base/version.h"
#include "libcore/device/cuda_variant.h"

namespace rw {
namespace {

std::string usage(const char* tool, std::span<const Subcommand> subcommands) {
  std::string text = fmt::format("Usage: {} SUBCOMMAND [--help] ...\n\nSubcommands:\n", tool);
  for (const Subcommand& s : subcommands) text += fmt::format("  {:<10}{}\n", s.name, s.help);
  return text;
}

}  // namespace

int run_subcommand(const char* tool, std::span<const Subcommand> subcommands, int argc, const char* const* argv) {
  const std::string first = argc > 1 ? argv[1] : "";
  if (first == "--help" || first == "-h") return std::fputs(usage(tool, subcommands).c_str(), stdout), 0;
  if (first == "--version") return std::printf("rankwright %s (%s)\n", version(), cuda_variant()), 0;
  std::vector<std::string> known;
  std::string names;
  for (const Subcommand& s : subcommands) {
    if (first == s.name) return s.run(argc - 1, argv + 1);
    known.push_back(s.name);
    names += (names.empty() ? "" : ", ") + known.back();
  }
  if (first.empty()) fail(ErrorKind::usage, "expected a subcommand ({}); see --help", names);
  const std::string near = nearest(first, known);
  fail(ErrorKind::usage, "unknown subcommand {}{}; see --help", first,
       near.empty() ? "" : ", did you mean " + near + "?");
}

}  // namespace rw
