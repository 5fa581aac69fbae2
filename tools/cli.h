// Command lines from field lists: every flag is a Field of some spec, so flags, TOML keys, JSON keys and --help cannot
// differ.
//
//   --name VALUE, --name=VALUE     strings, numbers, sizes; a list's flag repeats: --data a.h5 --data b.h5
//   --name, --no-name, --name true|false    booleans
//   --config FILE                  TOML with the same keys; may repeat (later wins; flags win over files); - is
//   standard input
//   --print-config                 prints the effective TOML and ends
//   -h, --help; --version; --help-markdown alone: the flags as the README's table
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "libcore/base/fields.h"

namespace rw {

struct CommandLine {
  std::string name;         // "dtrain prepare"
  std::string description;  // one or more lines for --help
  FieldList fields;         // values before parsing are the defaults
  std::vector<std::string> positional =
      {};                                  // names of fields that take bare arguments, in order; a list takes the rest
  std::vector<std::string> required = {};  // names of fields without which there is nothing to do
  std::vector<std::pair<std::string, std::string>> short_flags = {};  // {"-o", "output"}
  bool takes_config = true;
  std::vector<std::string> skip_tables = {};  // of TOML files ([plan], [predicted])
  Json* skipped_tables = nullptr;             // where they go, by name; later files win
  std::string footer = {};                    // subcommands, examples
  bool is_cpu_alone = false;                  // who gives it --device is told so
};

// Sets the fields. An exit code when the command line asked only for --help, --version or --print-config (printed to
// stdout); nothing when the tool should go on. Error{usage} names the flag, what was expected and found, and the
// nearest known flag for an unknown one.
std::optional<int> parse_command_line(const CommandLine& line, int argc, const char* const* argv);

// Runs a tool's main: prints an Error as "NAME: error: ..." on stderr and gives its exit code; anything else that is
// thrown is a bug of ours (1).
int run_tool(const std::string& name, const std::function<int()>& body);

}  // namespace rw
