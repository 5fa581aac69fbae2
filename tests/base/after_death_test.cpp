#include "libcore/base/after_death.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>

using namespace rw;
namespace fs = std::filesystem;

namespace {

// A process that does `body` and is then killed.
void killed_after(const std::function<void()>& body) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    body();
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
}

bool appears(const fs::path& file) {
  for (int i = 0; i < 1000 && !fs::exists(file); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return fs::exists(file);
}

struct Folder {
  Folder() {
    std::string name = (fs::temp_directory_path() / "rw_after_death_XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Folder() { fs::remove_all(path); }
  fs::path path;
};

}  // namespace

TEST_CASE("a command is run after a process was killed, and not while it lives") {
  const Folder folder;
  const fs::path file = folder.path / "it's \"odd\" $HOME";
  killed_after([&] {
    const AfterDeath after("touch -- \"$1\"", {file.string()});
    if (fs::exists(file)) ::_exit(1);  // then it was not a signal that ended it
    ::kill(::getpid(), SIGKILL);
  });
  CHECK(appears(file));
}

TEST_CASE("a command that was taken back is not run") {
  const Folder folder;
  killed_after([&] {
    { const AfterDeath taken_back("touch -- \"$1\"", {(folder.path / "no").string()}); }
    const AfterDeath kept("touch -- \"$1\"", {(folder.path / "yes").string()});
    ::kill(::getpid(), SIGKILL);
  });
  CHECK(appears(folder.path / "yes"));
  CHECK_FALSE(fs::exists(folder.path / "no"));
}
