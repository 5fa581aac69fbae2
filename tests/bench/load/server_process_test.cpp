#include "libcore/bench/load/server_process.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <fstream>

using namespace rw;
namespace fs = std::filesystem;

namespace {

struct Root {
  Root() {
    fs::remove_all(path);
    // Port 8000 (0x1F40) listens as inode 77; a connection to it and another port's listener do not count.
    write("proc/net/tcp",
          "  sl  local_address rem_address st ...\n"
          "   0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 77 1 x\n"
          "   1: 0100007F:1F40 0100007F:9999 01 00000000:00000000 00:00000000 00000000 0 0 78 1 x\n"
          "   2: 0100007F:1F41 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 79 1 x\n");
    process(10, 1, "mpirun", 1);
    process(11, 10, "dserve", 100, "socket:[77]");
    process(12, 10, "dserve", 200);        // the other rank
    process(13, 11, "worker (a) b", 400);  // of the owner; a name with parentheses
    process(14, 13, "worker", 800);        // and its own
    process(15, 10, "other", 1600, "socket:[78]");
    process(16, 1, "dserve", 3200, "socket:[79]");
  }
  ~Root() { fs::remove_all(path); }
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((path / name).parent_path());
    std::ofstream(path / name) << text;
  }
  void process(int pid, int parent, const std::string& name, int ticks, const std::string& holds = "") const {
    const std::string dir = "proc/" + std::to_string(pid);
    write(dir + "/stat", std::to_string(pid) + " (" + name + ") S " + std::to_string(parent) + " 1 1 0 -1 0 0 0 0 0 " +
                             std::to_string(ticks) + " 1 2 3 20 0 1\n");
    write(dir + "/cmdline", name);
    fs::create_directories(path / dir / "fd");
    if (!holds.empty()) fs::create_symlink(holds, path / dir / "fd/5");
  }
  fs::path path = fs::temp_directory_path() / ("rankwright_server_process_test." + std::to_string(::getpid()));
};

}  // namespace

TEST_CASE("the processes of a server: who listens, its ranks, its children") {
  const Root root;
  CHECK(server_processes(8000, root.path) == std::vector<int64_t>{11, 12, 13, 14});
  CHECK(server_processes(8001, root.path) == std::vector<int64_t>{16});
  CHECK(server_processes(8002, root.path).empty());
  // utime + stime + cutime + cstime of each.
  CHECK(cpu_seconds_of({11, 12, 13, 14}, root.path) * static_cast<double>(::sysconf(_SC_CLK_TCK)) ==
        doctest::Approx(1500 + 4 * 6));
  CHECK(cpu_seconds_of({99}, root.path) == 0);
}

TEST_CASE("which hosts are this one") {
  CHECK(is_this_host("127.0.0.1"));
  CHECK(is_this_host("127.0.0.9"));
  CHECK_FALSE(is_this_host("no.such.host.invalid"));
}
