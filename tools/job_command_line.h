// Command lines of jobs of several processes: rank 0 reads flags, files and standard input, the others get what came of
// it; an error is printed once.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "libcore/comm/comm.h"
#include "tools/cli.h"

namespace rw {

// Collective. As parse_command_line, on every rank alike.
std::optional<int> parse_job_command_line(const CommandLine& line, int argc, const char* const* argv, Comm& world);

// Runs body on this rank of the job: an error that all ranks share is thrown on rank 0 alone, one that only this rank
// met ends the job.
int run_job(const std::string& name, Comm& world, const std::function<int()>& body);

}  // namespace rw
