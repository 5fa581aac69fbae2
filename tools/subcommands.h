// Tools that are families of subcommands (dckpt show, dbench comm): which one is meant, and what there is.
#pragma once
#include <span>

namespace rw {

struct Subcommand {
  const char* name;
  const char* help;
  int (*run)(int argc, const char* const* argv);  // argv[0] is the subcommand's name
};

// Runs the one that argv[1] names; --help and --version are answered here. Error{usage} with the nearest name.
int run_subcommand(const char* tool, std::span<const Subcommand> subcommands, int argc, const char* const* argv);

}  // namespace rw
