// A server under test that runs on the client's host: which processes it is, and what CPU time they took. Beside it
// whatever else takes CPU time disturbs the measurement.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace rw {

// Whether a connection to `host` (a name or an address) stays on this host; false when it cannot be resolved.
bool is_this_host(const std::string& host);

// Who listens at a TCP port of this host, their descendants, and processes of the same command line and parent (the
// other ranks of one mpirun), with their descendants; this process is left out. Empty where none can be seen (another
// user's, another container's). From /proc below `root`.
std::vector<int64_t> server_processes(int port, const std::filesystem::path& root = "/");
// User and system time, that of children which have ended included; those that are gone count nothing.
double cpu_seconds_of(const std::vector<int64_t>& processes, const std::filesystem::path& root = "/");

}  // namespace rw
