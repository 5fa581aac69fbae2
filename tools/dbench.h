// The subcommands of dbench. argv[0] is the subcommand's name; each returns an exit code and throws Error.
#pragma once

namespace rw {
int dbench_comm(int argc, const char* const* argv);
int dbench_kernels(int argc, const char* const* argv);
}  // namespace rw
