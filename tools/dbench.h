// The subcommands of dbench. argv[0] is the subcommand's name; each returns an exit code and throws Error.
#pragma once

namespace rw {

int dbench_baseline(int argc, const char* const* argv);
int dbench_ckpt(int argc, const char* const* argv);
int dbench_comm(int argc, const char* const* argv);
int dbench_compare(int argc, const char* const* argv);
int dbench_cost(int argc, const char* const* argv);
int dbench_doctor(int argc, const char* const* argv);
int dbench_kernels(int argc, const char* const* argv);
int dbench_preflight(int argc, const char* const* argv);
int dbench_report(int argc, const char* const* argv);
int dbench_serve(int argc, const char* const* argv);
int dbench_storage(int argc, const char* const* argv);
int dbench_train(int argc, const char* const* argv);
int dbench_validate(int argc, const char* const* argv);

}  // namespace rw
