// The subcommands of dckpt. argv[0] is the tool's name; each returns an exit code and throws Error.
#pragma once

namespace rw {
int dckpt_ls(int argc, const char* const* argv);
int dckpt_show(int argc, const char* const* argv);
int dckpt_verify(int argc, const char* const* argv);
int dckpt_convert(int argc, const char* const* argv);
int dckpt_reshard(int argc, const char* const* argv);
int dckpt_diff(int argc, const char* const* argv);
int dckpt_prune(int argc, const char* const* argv);
int dckpt_cp(int argc, const char* const* argv);
}  // namespace rw
