#include "libcore/base/after_death.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "libcore/base/error.h"

namespace rw {

AfterDeath::AfterDeath(const std::string& script, const std::vector<std::string>& arguments) {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) fail(ErrorKind::runtime, "a pipe: {}", std::generic_category().message(errno));
  std::vector<std::string> words = {"sh", "-c", "trap '' HUP INT TERM; cat >/dev/null; " + script, "sh"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_adddup2(&files, ends[0], STDIN_FILENO);
  // A launcher waits for the end of the job's output: this process must not hold it open.
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  const int error = ::posix_spawn(&shell_, "/bin/sh", &files, &attributes, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  ::close(ends[0]);
  if (error != 0) {
    ::close(ends[1]);
    fail(ErrorKind::runtime, "starting /bin/sh: {}", std::generic_category().message(error));
  }
  pipe_ = ends[1];
}

AfterDeath::~AfterDeath() {
  ::kill(-shell_, SIGKILL);  // its session: the shell and the cat that waits
  ::close(pipe_);
  while (::waitpid(shell_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace rw
