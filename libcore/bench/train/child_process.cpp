#include "libcore/bench/train/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "libcore/base/clock.h"
#include "libcore/base/error.h"

namespace rw {

ChildProcess::ChildProcess(const std::vector<std::string>& argv, const std::filesystem::path& out,
                           const std::filesystem::path& err) {
  std::vector<char*> words;
  for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  posix_spawn_file_actions_addopen(&files, 2, err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  const int error = ::posix_spawnp(&pid_, words[0], &files, &attributes, words.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) {
    pid_ = -1;
    fail(ErrorKind::runtime, "{}: cannot be started: {}", argv[0], std::strerror(error));
  }
  guard_.emplace("kill -TERM \"-$1\" && sleep 5; kill -KILL \"-$1\"", std::vector{std::to_string(pid_)});
}

ChildProcess::~ChildProcess() { end(); }

bool ChildProcess::running() {
  if (pid_ < 0 || code_ >= 0) return false;
  int status = 0;
  if (::waitpid(pid_, &status, WNOHANG) != pid_) return true;
  code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  guard_.reset();  // the number may be another process's from now on
  return false;
}

bool ChildProcess::wait(double seconds) {
  const double until = now_s() + seconds;
  while (running()) {
    if (now_s() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return true;
}

void ChildProcess::end() {
  if (!running()) return;
  ::kill(-pid_, SIGTERM);
  if (wait(5)) return;
  ::kill(-pid_, SIGKILL);
  wait(5);
}

}  // namespace rw
