#include "libcore/bench/record/machine.h"

#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "libcore/base/clock.h"

using namespace rw;
namespace fs = std::filesystem;

namespace {

struct Root {
  Root() {
    fs::remove_all(path);
    write("proc/cpuinfo",
          "processor\t: 0\nmodel name\t: Example CPU @ 2 GHz\nflags\t\t: a b\n\nprocessor\t: 1\nmodel name\t: Other\n");
    write("proc/meminfo", "MemTotal:       16307780 kB\nMemFree:  1 kB\nMemAvailable:    8000000 kB\n");
    write("proc/self/status", "Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t0-3,8,10-11\n");
    write("sys/devices/system/cpu/online", "0-3,8,10-11\n");
    write("proc/self/cgroup", "0::/a/b\n");
    write("proc/stat", "cpu  100 0 50 850 0 0 0 0 0 0\ncpu0 100 0 50 850 0 0 0 0 0 0\n");
    write("etc/os-release", "NAME=\"Other\"\nPRETTY_NAME=\"Example Linux 12 (name)\"\n");
    write("proc/sys/kernel/osrelease", "6.1.0-x\n");
  }
  ~Root() { fs::remove_all(path); }
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((path / name).parent_path());
    std::ofstream(path / name) << text;
  }
  MachineIdentity identity() const { return machine_identity(path); }
  fs::path path = fs::temp_directory_path() / "rankwright_machine_test";
};

}  // namespace

TEST_CASE("what a machine says of itself") {
  const Root root;
  const MachineIdentity m = root.identity();
  CHECK(m.cpu_model == "Example CPU @ 2 GHz");
  CHECK(m.os == "Example Linux 12 (name)");
  CHECK(m.kernel == "6.1.0-x");
  CHECK(m.cpus == 7);
  CHECK(m.memory_bytes == 16307780 * int64_t{1024});
  CHECK(m.backend.starts_with("cpu/"));
  CHECK_FALSE(m.compiler.empty());
  CHECK_FALSE(m.mpi.empty());
  CHECK(m.mpi.find('\n') == std::string::npos);
  CHECK(m.fingerprint.size() == 16);
  const Json json = machine_json(m);
  CHECK(json["cpus"] == 7);
  CHECK(json["fingerprint"] == m.fingerprint);
}

TEST_CASE("CPUs: the quota of the group or of one above it, rounded up; version 1 and 2") {
  const Root root;
  root.write("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  CHECK(root.identity().cpus == 7);
  root.write("sys/fs/cgroup/a/cpu.max", "250000 100000\n");
  CHECK(root.identity().cpus == 3);
  root.write("sys/fs/cgroup/a/memory.max", "2147483648\n");
  CHECK(root.identity().memory_bytes == int64_t{2147483648});
  root.write("proc/self/cgroup", "4:memory:/m\n3:cpu,cpuacct:/job\n1:name=systemd:/\n");
  CHECK(root.identity().cpus == 7);
  root.write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n");
  root.write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  CHECK(root.identity().cpus == 7);
  root.write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "100001\n");
  CHECK(root.identity().cpus == 2);
  root.write("sys/fs/cgroup/memory/m/memory.limit_in_bytes", "9223372036854771712\n");
  CHECK(root.identity().memory_bytes == 16307780 * int64_t{1024});
  // Inside a container the path is the host's and only the root is mounted.
  root.write("proc/self/cgroup", "0::/../outside\n");
  root.write("sys/fs/cgroup/cpu.max", "400000 100000\n");
  CHECK(root.identity().cpus == 4);
}

TEST_CASE("a rank that is bound to some CPUs is on the same machine") {
  const Root root;
  const MachineIdentity free = root.identity();
  CHECK(free.usable_cpus == 7);
  root.write("proc/self/status", "Name:\tx\nCpus_allowed_list:\t8,10\n");
  const MachineIdentity bound = root.identity();
  CHECK(bound.cpus == 7);
  CHECK(bound.usable_cpus == 2);
  CHECK(bound.fingerprint == free.fingerprint);
  CHECK(machine_json(bound)["usable_cpus"] == 2);
  // A container's set of CPUs is another machine.
  root.write("sys/fs/cgroup/a/cpuset.cpus.effective", "0-2\n");
  CHECK(root.identity().cpus == 3);
  CHECK(root.identity().fingerprint != free.fingerprint);
  root.write("proc/self/cgroup", "3:cpuset:/job\n");
  root.write("sys/fs/cgroup/cpuset/job/cpuset.effective_cpus", "1\n");
  CHECK(root.identity().cpus == 1);
  CHECK(root.identity().usable_cpus == 1);
}

TEST_CASE("an empty root is no error") {
  const fs::path nowhere = fs::temp_directory_path() / "rankwright_no_such_root";
  const MachineIdentity m = machine_identity(nowhere);
  CHECK(m.cpu_model.empty());
  CHECK(m.cpus == 0);
  CHECK(m.memory_bytes == 0);
}

TEST_CASE("what was measured on a GPU is of another machine than what was on its host's CPUs") {
  const Json cpu = machine_json(machine_identity());
  Json same = cpu, gpu = cpu, other = cpu;
  set_device(same, "cpu/avx2");
  CHECK(same == cpu);
  set_device(gpu, "cuda:3 (NVIDIA H200)");
  CHECK(gpu["backend"] == "cuda (NVIDIA H200)");
  CHECK(gpu["fingerprint"] != cpu["fingerprint"]);
  set_device(other, "cuda:0 (NVIDIA H200)");
  CHECK(other == gpu);  // which of a host's equal ones says nothing
}

TEST_CASE("the fingerprint is of what changes speed") {
  MachineIdentity m;
  m.cpu_model = "A";
  m.cpus = 7;
  m.memory_bytes = int64_t{31} << 30;
  m.backend = "cpu/avx2";
  const std::string before = machine_fingerprint(m);
  MachineIdentity same = m;
  same.host = "another", same.os = "another", same.kernel = "5", same.memory_bytes += int64_t{300} << 20;
  CHECK(machine_fingerprint(same) == before);
  for (int i = 0; i < 4; ++i) {
    MachineIdentity other = m;
    if (i == 0) other.cpu_model = "B";
    if (i == 1) other.cpus = 8;
    if (i == 2) other.memory_bytes += int64_t{1} << 30;
    if (i == 3) other.backend = "cpu/avx512";
    CHECK(machine_fingerprint(other) != before);
  }
}

TEST_CASE("quiet: the CPU that others took") {
  const Root root;
  QuietMeter meter(0, root.path);
  // Ticks are 10 ms: 30 s of which others took 6.
  const auto measure = [&](const std::string& after) {
    meter.start();
    const double end = now_s() + 0.25;
    while (now_s() < end) {
    }
    root.write("proc/stat", after);
    meter.stop();
  };
  measure("cpu  100 0 50 3850 0 0 0 0 0 0\n");
  CHECK(meter.others_share() < 0.01);
  CHECK(meter.is_quiet());
  CHECK(std::isnan(meter.cpu_share()));
  measure("cpu  700 0 50 6250 0 0 0 0 0 0\n");  // 6 busy seconds of 30, after none of 30
  CHECK(meter.others_share() == doctest::Approx(0.1 - meter.cpu_s() / 60).epsilon(0.02));
  measure("cpu  700 0 50 6250 0 0 0 3000 0 0\n");  // stolen from this guest
  CHECK(meter.others_share() > 0.3);
  CHECK_FALSE(meter.is_quiet());
  meter.count_as_ours(36);
  CHECK(meter.others_share() < 0.01);
  CHECK(meter.is_quiet());
}

TEST_CASE("quiet: a thread that waits when it should compute") {
  const fs::path nowhere = fs::temp_directory_path() / "rankwright_no_such_root";
  QuietMeter meter(64, nowhere);  // 64 threads should compute, one does
  meter.start();
  const double end = now_s() + 0.02;
  while (now_s() < end) {
  }
  meter.stop();
  CHECK(meter.cpu_share() <= 1.0 / 60);
  CHECK(meter.cpu_share() > 0);
  CHECK(std::isnan(meter.others_share()));
  CHECK_FALSE(meter.is_quiet());
  CHECK(std::isnan(QuietMeter(1).cpu_share()));
}
