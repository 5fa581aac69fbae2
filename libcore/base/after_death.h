// A shell command for when this process is gone, however it ended: a signal, a crash, an mpirun that kills its ranks.
#pragma once
#include <sys/types.h>

#include <string>
#include <vector>

namespace rw {

// A small process of the system's shell waits for this one's end and runs `script` then, with `arguments` as "$1",
// "$2", ...; it is in a session of its own, which a Ctrl-C does not reach, and holds none of this process's files.
class AfterDeath {
 public:
  // Error{runtime} when no process can be started.
  AfterDeath(const std::string& script, const std::vector<std::string>& arguments);
  AfterDeath(const AfterDeath&) = delete;
  AfterDeath& operator=(const AfterDeath&) = delete;
  ~AfterDeath();  // nothing is run

 private:
  int pipe_ = -1;  // its end is the signal
  pid_t shell_ = -1;
};

}  // namespace rw
