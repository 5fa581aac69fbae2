// The sampler on this host and on one made of files.
#include "libcore/telemetry/resources.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/base/files.h"

using namespace rw;
namespace fs = std::filesystem;

namespace {

struct Folder {
  Folder() {
    std::string name = (fs::temp_directory_path() / "rw_resources_XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Folder() { fs::remove_all(path); }
  fs::path path;
};

void put(const fs::path& file, const std::string& text) {
  fs::create_directories(file.parent_path());
  std::ofstream(file) << text;
}

std::vector<Json> lines_of(const fs::path& file) {
  std::vector<Json> lines;
  const std::string text = read_file(file);
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
    lines.push_back(parse_json(std::string_view(text).substr(begin, end - begin), file.string()));
  return lines;
}

// Until the file has so many lines; a test that waits for ten seconds has failed.
bool wait_for_lines(const fs::path& file, size_t n) {
  for (const double until = now_s() + 10; now_s() < until; std::this_thread::sleep_for(std::chrono::milliseconds(2)))
    if (lines_of(file).size() >= n) return true;
  return false;
}

}  // namespace

TEST_CASE("this host") {
  const HostCounters host = read_host_counters({});
  REQUIRE(host.cpu);
  CHECK(host.cpu->total() > 0);
  CHECK(host.cpus >= 1);
  REQUIRE(host.memory);
  CHECK(host.memory->total >= host.memory->available);
  REQUIRE(host.load);
  CHECK(host.load->running >= 1);  // this test
  CHECK(host.resident_bytes.at(::getpid()) > 100'000);
}

TEST_CASE("lines line up with steps, and end when the sampler does") {
  const Folder folder;
  const fs::path file = folder.path / "resources.jsonl";
  std::atomic<int64_t> step{7};
  const double before_s = now_s();
  {
    const ResourceSampler sampler({.file = file, .host = "a-host", .interval_s = 0.01, .pids = {::getpid()}}, &step);
    REQUIRE(wait_for_lines(file, 3));
    step = 8;
    REQUIRE(wait_for_lines(file, lines_of(file).size() + 2));
  }
  const std::vector<Json> lines = lines_of(file);
  CHECK(lines.front()["step"] == 7);
  CHECK(lines.back()["step"] == 8);
  double last_s = before_s;
  for (const Json& line : lines) {
    CHECK(line["host"] == "a-host");
    CHECK(line["time"].get<std::string>().size() == utc_timestamp().size());
    CHECK(line["clock_s"].get<double>() >= last_s);
    CHECK(line["interval_s"].get<double>() > 0);
    CHECK(line["interval_s"].get<double>() <= line["clock_s"].get<double>() - last_s + 1e-9);
    CHECK(line["resident_bytes"][std::to_string(::getpid())] > 100'000);
    last_s = line["clock_s"].get<double>();
  }
  CHECK(last_s <= now_s());
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  CHECK(lines_of(file).size() == lines.size());
}

TEST_CASE("a long interval delays neither the end nor the last line") {
  const Folder folder;
  { const ResourceSampler sampler({.file = folder.path / "r.jsonl", .interval_s = 3600}, nullptr); }
  CHECK(lines_of(folder.path / "r.jsonl").size() == 1);
}

TEST_CASE("a host made of files") {
  const Folder folder;
  const fs::path proc = folder.path / "proc", sys = folder.path / "sys";
  put(proc / "stat", "cpu 1 2 3 4 5 6 7 8 9 10\ncpu0 1\ncpu1 1\ncpu2 1\n");
  put(proc / "net/dev", "ib0: 1 0 0 0 0 0 0 0 2 0 0 0 0 0 0 0\n");
  put(proc / "net/snmp", "Tcp: RetransSegs\nTcp: 5\n");
  put(proc / "self/status", "VmRSS: 3 kB\n");
  put(proc / "99/status", "VmRSS: 4 kB\n");
  for (const char* cpu : {"cpu0", "cpu1", "cpu2"})
    put(sys / "devices/system/cpu" / cpu / "cpufreq/scaling_cur_freq",
        std::to_string(1000000 * (cpu[3] - '0' + 1)) + "\n");
  const HostCounters host = read_host_counters({.pids = {99, 100}, .proc = proc, .sys = sys});
  CHECK(host.cpu == CpuTicks{.busy = 1 + 2 + 3 + 6 + 7, .idle = 4, .io_wait = 5, .steal = 8});
  CHECK(host.cpus == 3);
  CHECK(!host.load);
  CHECK(!host.memory);
  CHECK(host.interfaces.at("ib0").sent_bytes == 2);
  CHECK(host.tcp_retransmits == 5);
  CHECK(host.disks.empty());
  CHECK(host.resident_bytes == std::map<int64_t, int64_t>{{::getpid(), 3 << 10}, {99, 4 << 10}});  // 100 is gone
  CHECK(host.clock_mhz_mean == doctest::Approx(2000));
  CHECK(host.clock_mhz_min == doctest::Approx(1000));
}

TEST_CASE("a host that says nothing, and garbage, are recorded as that") {
  const Folder folder;
  const fs::path proc = folder.path / "proc", file = folder.path / "r.jsonl";
  for (const char* name : {"stat", "loadavg", "meminfo", "net/dev", "net/snmp", "diskstats", "self/status"})
    put(proc / name, std::string("\0\xff: \n cpu \n1/2\n", 15));
  for (const fs::path& root : {proc, folder.path / "absent"}) {
    const ResourceSampler sampler({.file = file, .interval_s = 0.005, .proc = root, .sys = root}, nullptr);
    CHECK(wait_for_lines(file, 2));
  }
  for (const Json& line : lines_of(file)) {
    CHECK(line["step"] == 0);
    CHECK(!line.contains("cpu"));
    CHECK(line["resident_bytes"].empty());
  }
}

TEST_CASE("a full disk ends nothing") {
  const ResourceSampler sampler({.file = "/dev/full", .interval_s = 0.005}, nullptr);
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
}

TEST_CASE("a file that cannot be opened is said at the start") {
  CHECK_THROWS_AS(ResourceSampler({.file = "/nonexistent/r.jsonl"}, nullptr), Error);
}

TEST_CASE("signals stay with the thread that makes the sampler") {
  const Folder folder;
  sigset_t before, after;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &before);
  const ResourceSampler sampler({.file = folder.path / "r.jsonl"}, nullptr);
  ::pthread_sigmask(SIG_SETMASK, nullptr, &after);
  for (const int number : {SIGUSR1, SIGTERM, SIGINT})
    CHECK(::sigismember(&before, number) == ::sigismember(&after, number));
}
