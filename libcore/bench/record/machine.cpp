#include "libcore/bench/record/machine.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <tuple>
#include <vector>

#include "kernels/ops.h"
#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/hash.h"
#include "libcore/bench/record/mpi_version.h"
#include "libcore/telemetry/host_counters.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

constexpr double kQuietCpuShare = 0.95;
constexpr double kLeastTime_s = 0.2;  // 20 ticks of /proc/stat

// Files of /proc may be missing or unreadable in a container; then empty.
std::string text_of(const fs::path& file) {
  std::error_code none;
  if (!fs::is_regular_file(file, none)) return {};
  try {
    return read_file(file);
  } catch (const Error&) {
    return {};
  }
}

std::string trimmed(std::string_view s) {
  const size_t first = s.find_first_not_of(" \t\r\n\"'");
  if (first == std::string_view::npos) return {};
  return std::string(s.substr(first, s.find_last_not_of(" \t\r\n\"'") - first + 1));
}

// The value of the first line that begins with one of `keys`, after the separator; keys in order of preference.
std::string value_of(const std::string& text, const std::vector<std::string>& keys, char separator) {
  for (const std::string& key : keys) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      const size_t at = line.find(separator);
      if (at != std::string::npos && trimmed(line.substr(0, at)) == key) return trimmed(line.substr(at + 1));
    }
  }
  return {};
}

std::optional<double> number(std::string_view s) {
  double v = 0;
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), v);
  if (error != std::errc() || end != s.data() + s.size()) return std::nullopt;
  return v;
}

// "0-3,8,10-11" -> 7; 0 of anything else.
int64_t count_list(const std::string& list) {
  int64_t n = 0;
  std::istringstream parts(list);
  for (std::string part; std::getline(parts, part, ',');) {
    const size_t dash = part.find('-');
    const auto first = number(part.substr(0, dash));
    const auto last = dash == std::string::npos ? first : number(part.substr(dash + 1));
    if (!first || !last || *last < *first) return 0;
    n += static_cast<int64_t>(*last - *first) + 1;
  }
  return n;
}

// CPUs that a group's quota comes to; of this file pair "quota period" (v2: "max 100000", "150000 100000").
std::optional<double> quota_cpus(const std::string& quota, const std::string& period) {
  const auto q = number(trimmed(quota)), p = number(trimmed(period));
  if (!q || !p || *q <= 0 || *p <= 0) return std::nullopt;  // v1 says -1 for none
  return *q / *p;
}

std::optional<double> quota_of_folder(const fs::path& folder) {
  const std::string v2 = text_of(folder / "cpu.max");
  if (const size_t space = v2.find(' '); space != std::string::npos)
    return quota_cpus(v2.substr(0, space), v2.substr(space + 1));
  return quota_cpus(text_of(folder / "cpu.cfs_quota_us"), text_of(folder / "cpu.cfs_period_us"));
}

// The folders of this process's groups that may hold a limit of `controller`: its own and all above it, under version 2
// and version 1. In a container the path of /proc/self/cgroup may be the host's: then only the root is there.
std::vector<fs::path> group_folders(const fs::path& root, const std::string& controller) {
  std::vector<fs::path> found;
  const fs::path mount = root / "sys/fs/cgroup";
  std::istringstream lines(text_of(root / "proc/self/cgroup"));
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    fs::path base;
    if (controllers == ",,") base = mount;
    else if (controllers.find("," + controller + ",") != std::string::npos)
      base = mount / line.substr(first + 1, second - first - 1);
    else continue;
    for (fs::path inside = fs::path(line.substr(second + 1)).relative_path();; inside = inside.parent_path()) {
      found.push_back(inside.empty() ? base : base / inside);
      if (inside.empty()) break;
    }
    if (base != mount) found.push_back(mount / controller);
  }
  if (found.empty()) found.push_back(mount);
  return found;
}

// Of the machine or container, however few of them this process is bound to.
int64_t machine_cpus(const fs::path& root) {
  int64_t n = count_list(trimmed(text_of(root / "sys/devices/system/cpu/online")));
  if (n == 0) n = parse_cpu_count(text_of(root / "proc/stat"));
  for (const fs::path& folder : group_folders(root, "cpuset"))
    for (const char* file : {"cpuset.cpus.effective", "cpuset.effective_cpus"})
      if (const int64_t set = count_list(trimmed(text_of(folder / file))); set > 0) n = std::min(n, set);
  for (const fs::path& folder : group_folders(root, "cpu"))
    if (const auto quota = quota_of_folder(folder)) n = std::min(n, static_cast<int64_t>(std::ceil(*quota)));
  return n;
}

int64_t allowed_cpus(const fs::path& root, int64_t of_machine) {
  const int64_t n = count_list(value_of(text_of(root / "proc/self/status"), {"Cpus_allowed_list"}, ':'));
  return n == 0 ? of_machine : std::min(n, of_machine);
}

int64_t usable_memory(const fs::path& root) {
  const auto memory = parse_memory(text_of(root / "proc/meminfo"));
  int64_t bytes = memory ? memory->total : 0;
  for (const fs::path& folder : group_folders(root, "memory"))
    for (const char* file : {"memory.max", "memory.limit_in_bytes"})
      if (const auto limit = number(trimmed(text_of(folder / file))); limit && *limit > 0 && *limit < 1e18)
        bytes = std::min(bytes, static_cast<int64_t>(*limit));
  return bytes;
}

std::string host_name() {
  char name[256] = "";
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

std::string kernel_release(const fs::path& root) {
  if (const std::string text = trimmed(text_of(root / "proc/sys/kernel/osrelease")); !text.empty()) return text;
  utsname name{};
  return ::uname(&name) == 0 ? name.release : "";
}

std::string compiler_name() {
#if defined(__clang__)
  return "clang " __clang_version__;
#elif defined(__GNUC__)
  return "gcc " __VERSION__;
#else
  return "";
#endif
}

std::string backend_name() {
  try {
    return cpu_ops().name;
  } catch (const std::invalid_argument& e) {
    fail(ErrorKind::usage, "{}", e.what());
  }
}

// Busy and all CPU seconds of the machine since it started.
std::optional<std::pair<double, double>> machine_seconds(const fs::path& root) {
  const auto ticks = parse_cpu_ticks(text_of(root / "proc/stat"));
  const long hz = ::sysconf(_SC_CLK_TCK);
  if (!ticks || hz <= 0) return std::nullopt;
  const double s = 1.0 / static_cast<double>(hz);
  return std::pair{static_cast<double>(ticks->busy + ticks->steal) * s, static_cast<double>(ticks->total()) * s};
}

}  // namespace

std::string machine_fingerprint(const MachineIdentity& m) {
  const int64_t gib = (m.memory_bytes + (int64_t{1} << 29)) >> 30;  // to the nearest: kernels keep some for themselves
  return hex64(hash64(m.cpu_model + "\n" + std::to_string(m.cpus) + "\n" + std::to_string(gib) + "\n" + m.backend));
}

MachineIdentity machine_identity(const fs::path& root) {
  MachineIdentity m;
  m.host = host_name();
  const std::string cpuinfo = text_of(root / "proc/cpuinfo");
  m.cpu_model = value_of(cpuinfo, {"model name", "Model", "cpu model", "CPU part"}, ':');
  m.os = value_of(text_of(root / "etc/os-release"), {"PRETTY_NAME", "NAME"}, '=');
  m.kernel = kernel_release(root);
  m.compiler = compiler_name();
  m.mpi = mpi_library_version();
  m.cpus = machine_cpus(root);
  m.usable_cpus = allowed_cpus(root, m.cpus);
  m.memory_bytes = usable_memory(root);
  m.backend = backend_name();
  m.fingerprint = machine_fingerprint(m);
  return m;
}

Json machine_json(const MachineIdentity& m) {
  return {{"fingerprint", m.fingerprint},
          {"host", m.host},
          {"cpu_model", m.cpu_model},
          {"cpus", m.cpus},
          {"usable_cpus", m.usable_cpus},
          {"memory_bytes", m.memory_bytes},
          {"backend", m.backend},
          {"os", m.os},
          {"kernel", m.kernel},
          {"compiler", m.compiler},
          {"mpi", m.mpi}};
}

void set_device(Json& machine, const std::string& device) {
  if (!device.starts_with("cuda")) return;
  const size_t name = device.find(" (");
  MachineIdentity m;
  m.cpu_model = machine.value("cpu_model", "");
  m.cpus = machine.value("cpus", int64_t{0});
  m.memory_bytes = machine.value("memory_bytes", int64_t{0});
  m.backend = "cuda" + (name == std::string::npos ? "" : device.substr(name));
  machine["backend"] = m.backend;
  machine["fingerprint"] = machine_fingerprint(m);
}

QuietMeter::QuietMeter(int64_t threads, fs::path root) : threads_(threads), root_(std::move(root)) {}

void QuietMeter::start() {
  const auto machine = machine_seconds(root_);
  knows_machine_ = knows_machine_ && machine;
  if (machine) std::tie(start_busy_, start_total_) = *machine;
  start_cpu_ = process_cpu_s();
  start_wall_ = now_s();
}

void QuietMeter::stop() {
  wall_s_ += now_s() - start_wall_;
  cpu_s_ += process_cpu_s() - start_cpu_;
  const auto machine = machine_seconds(root_);
  knows_machine_ = knows_machine_ && machine;
  if (!machine) return;
  busy_s_ += machine->first - start_busy_;
  machine_s_ += machine->second - start_total_;
}

double QuietMeter::cpu_share() const {
  if (threads_ <= 0 || wall_s_ <= 0) return std::numeric_limits<double>::quiet_NaN();
  return cpu_s_ / (wall_s_ * static_cast<double>(threads_));
}

double QuietMeter::others_share() const {
  if (!knows_machine_ || wall_s_ < kLeastTime_s || machine_s_ <= 0) return std::numeric_limits<double>::quiet_NaN();
  return std::max(0.0, busy_s_ - cpu_s_ - friends_s_) / machine_s_;
}

bool QuietMeter::is_quiet() const {
  if (threads_ > 0 && !(cpu_share() >= kQuietCpuShare)) return false;
  return !(others_share() > kQuietOthersShare);  // unknown: nothing speaks against it
}

}  // namespace rw
