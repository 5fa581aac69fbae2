// Another program, run with a limit of time: its output in files, its whole process group ended with it,
// and when this process ends, however that is.
#pragma once
#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "libcore/base/after_death.h"

namespace rw {

class ChildProcess {
 public:
  // Looks argv[0] up in PATH; standard input is empty. Error{runtime} when it cannot be started.
  ChildProcess(const std::vector<std::string>& argv, const std::filesystem::path& out,
               const std::filesystem::path& err);
  ~ChildProcess();  // ends it: SIGTERM, after 5 s SIGKILL, to its group
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  bool running();
  // Waits up to so many seconds; false: it still runs.
  bool wait(double seconds);
  // Its exit code, 128 + the signal that ended it; -1 while it runs.
  int code() const { return code_; }
  void end();

 private:
  pid_t pid_ = -1;
  int code_ = -1;
  std::optional<AfterDeath> guard_;
};

}  // namespace rw
