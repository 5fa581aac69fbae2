#include "tools/dplan_config.h"

#include <algorithm>
#include <iostream>
#include <iterator>

#include "libcore/base/files.h"

namespace rw {

FieldList fields(PlanFlags& flags, const std::vector<std::string>& without) {
  FieldList list = fields(flags.spec);
  list.erase(std::remove_if(
                 list.begin(), list.end(),
                 [&](const Field& f) { return std::find(without.begin(), without.end(), f.name) != without.end(); }),
             list.end());
  list.push_back({.name = "config",
                  .value = &flags.config,
                  .help = "a plan as dplan train -o writes it (or dtrain's own configuration); flags win over it; - is "
                          "standard input",
                  .group = "Work"});
  return list;
}

std::optional<int> parse_plan_command(const CommandLine& line, PlanFlags& flags, int argc, const char* const* argv) {
  if (const auto code = parse_command_line(line, argc, argv)) return code;
  if (flags.config.empty()) return std::nullopt;
  for (const std::string& file : std::vector<std::string>(flags.config)) {
    const bool is_stdin = file == "-";
    const std::string text = is_stdin ? std::string(std::istreambuf_iterator<char>(std::cin), {}) : read_file(file);
    flags.stage_layers = read_plan_file(flags.spec, text, is_stdin ? "standard input" : file);
  }
  const int64_t stages = flags.spec.pp * flags.spec.vpp;
  const auto code = parse_command_line(line, argc, argv);
  if (flags.spec.pp * flags.spec.vpp != stages) flags.stage_layers.clear();  // dealt anew
  return code;
}

}  // namespace rw
