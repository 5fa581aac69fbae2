// Command lines of the subcommands that take a plan: flags as `dplan train` has them, over a file that it wrote.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "libcore/plan/search/plan_file.h"
#include "tools/cli.h"

namespace rw {

struct PlanFlags {
  PlanSpec spec;
  std::vector<std::string> config;
  std::string stage_layers;  // of the file
  bool from_file() const { return !config.empty(); }
};
// Of the spec, without those named, and --config.
FieldList fields(PlanFlags& flags, const std::vector<std::string>& without);

// parse_command_line, with the files read before the flags are applied. `line` has the fields of `flags` in its list
// and takes_config = false.
std::optional<int> parse_plan_command(const CommandLine& line, PlanFlags& flags, int argc, const char* const* argv);

}  // namespace rw
