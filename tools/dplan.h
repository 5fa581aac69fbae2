// The subcommands of dplan. argv[0] is the subcommand's name; each returns an exit code and throws Error.
#pragma once

namespace rw {
int dplan_train(int argc, const char* const* argv);
int dplan_memory(int argc, const char* const* argv);
int dplan_schedule(int argc, const char* const* argv);
int dplan_scale(int argc, const char* const* argv);
int dplan_ckpt(int argc, const char* const* argv);
int dplan_place(int argc, const char* const* argv);
int dplan_discover(int argc, const char* const* argv);
int dplan_calibrate(int argc, const char* const* argv);
int dplan_serve(int argc, const char* const* argv);
}  // namespace rw
