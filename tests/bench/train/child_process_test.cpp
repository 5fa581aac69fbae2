#include "libcore/bench/train/child_process.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

using namespace rw;
namespace fs = std::filesystem;

TEST_CASE("a child ends with its parent, also when that one is killed") {
  std::string name = (fs::temp_directory_path() / "rw_child_XXXXXX").string();
  REQUIRE(::mkdtemp(name.data()) != nullptr);
  const fs::path folder = name, out = folder / "out", err = folder / "err";
  const pid_t parent = ::fork();
  REQUIRE(parent >= 0);
  if (parent == 0) {
    const ChildProcess child({"sh", "-c", "echo $$; exec sleep 1000"}, out, err);
    for (int i = 0; i < 1000 && fs::file_size(out) == 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  REQUIRE(::waitpid(parent, &status, 0) == parent);
  pid_t pid = 0;
  std::ifstream(out) >> pid;
  REQUIRE(pid > 1);
  // Ended and reaped by whoever inherits it, or at least ended.
  const auto ended = [&] {
    std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
    std::string number, command, state;
    return !(stat >> number >> command >> state) || state == "Z";
  };
  for (int i = 0; i < 1500 && !ended(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK(ended());
  fs::remove_all(folder);
}

TEST_CASE("a child's exit code, and an end within its time") {
  const fs::path null = "/dev/null";
  ChildProcess seven({"sh", "-c", "exit 7"}, null, null);
  REQUIRE(seven.wait(20));
  CHECK(seven.code() == 7);
  ChildProcess sleeps({"sleep", "1000"}, null, null);
  CHECK_FALSE(sleeps.wait(0.1));
  sleeps.end();
  CHECK(sleeps.code() == 128 + SIGTERM);
}
