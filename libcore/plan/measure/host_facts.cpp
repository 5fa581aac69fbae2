#include "libcore/plan/measure/host_facts.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <optional>
#include <set>
#include <sstream>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/device/inventory.h"
#include "libcore/plan/measure/joined_topology.h"
#include "libcore/telemetry/host_counters.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

constexpr size_t kMostOutput = 1 << 20;

// Files of /proc have no size and may go away; empty when they cannot be read.
std::string text_of(const fs::path& file) {
  std::error_code none;
  if (!fs::exists(file, none)) return {};
  try {
    return read_file(file);
  } catch (const Error&) {
    return {};
  }
}

std::string_view trimmed(std::string_view s) {
  const size_t first = s.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return s.substr(first, s.find_last_not_of(" \t\r\n") - first + 1);
}

std::optional<int64_t> number(std::string_view s) {
  s = trimmed(s);
  int64_t n = 0;
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), n);
  if (error != std::errc() || end != s.data() + s.size() || n < 0) return std::nullopt;
  return n;
}

// Numbered entries ("cpu0", "node1") of a folder under /sys.
std::vector<fs::path> numbered(const fs::path& folder, const std::string& prefix) {
  std::vector<fs::path> found;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, none)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(prefix) && number(name.substr(prefix.size()))) found.push_back(entry.path());
  }
  return found;
}

// SMT siblings name the same list, so the different lists are the cores.
int64_t count_cores(const fs::path& root) {
  std::set<std::string> lists;
  for (const fs::path& cpu : numbered(root / "sys/devices/system/cpu", "cpu"))
    if (const std::string list = text_of(cpu / "topology" / "thread_siblings_list"); !list.empty()) lists.insert(list);
  return std::max<int64_t>(1, static_cast<int64_t>(lists.size()));
}

int64_t count_numa_nodes(const fs::path& root) {
  int64_t n = 0;
  for (const fs::path& node : numbered(root / "sys/devices/system/node", "node"))
    if (!trimmed(text_of(node / "cpulist")).empty()) ++n;
  return std::max<int64_t>(1, n);
}

std::string cpu_model(const fs::path& root) {
  std::istringstream text(text_of(root / "proc/cpuinfo"));
  for (std::string line; std::getline(text, line);)
    if (line.starts_with("model name")) {
      const size_t colon = line.find(':');
      if (colon != std::string::npos) return std::string(trimmed(std::string_view(line).substr(colon + 1)));
    }
  return "CPU";
}

int64_t allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

}  // namespace

CommandOutput output_of(const char* command, int limit_s) {
  // What timeout(1) exits with when it has ended the command, gently or not.
  constexpr int kEnded = 124, kKilled = 137;
  const std::string limited = fmt::format("timeout -k 2 {} {}", limit_s, command);
  std::FILE* pipe = ::popen(limited.c_str(), "r");
  if (pipe == nullptr) return {};
  std::string out;
  char part[4096];
  for (size_t n = 1; n > 0 && out.size() < kMostOutput; out.append(part, n)) n = std::fread(part, 1, sizeof part, pipe);
  const int status = ::pclose(pipe);
  // Into files and JSON goes nothing that those cannot hold. Escapes are a terminal's underlining, told apart later.
  for (char& c : out)
    if (static_cast<unsigned char>(c) >= 0x7f ||
        (c >= 0 && c < ' ' && c != '\n' && c != '\t' && c != '\r' && c != '\x1b'))
      c = '?';
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  return {.text = std::move(out), .code = code, .is_late = code == kEnded || code == kKilled};
}

std::vector<GpuFacts> parse_gpus(std::string_view csv) {
  std::vector<GpuFacts> gpus;
  while (!csv.empty()) {
    const std::string_view line = csv.substr(0, csv.find('\n'));
    csv.remove_prefix(std::min(csv.size(), line.size() + 1));
    size_t comma = line.rfind(',');
    if (comma == std::string_view::npos) continue;
    const std::string bus_id = pci_bus_id(trimmed(line.substr(comma + 1)));
    std::string_view rest = line;
    if (!bus_id.empty()) {
      rest = line.substr(0, comma);
      comma = rest.rfind(',');
      if (comma == std::string_view::npos) continue;
    }
    std::string name(trimmed(rest.substr(0, comma)));
    std::replace_if(
        name.begin(), name.end(), [](char c) { return c >= 0 && c < ' '; }, '?');  // a terminal's escapes
    const std::optional<int64_t> mib = number(rest.substr(comma + 1));
    if (!name.empty() && mib && *mib > 0 && *mib < (int64_t{1} << 40))
      gpus.push_back({.name = name, .memory = *mib << 20, .bus_id = bus_id});
  }
  return gpus;
}

HostFacts read_host_facts(const fs::path& root) {
  HostFacts facts;
  facts.cores = count_cores(root);
  facts.numa_nodes = count_numa_nodes(root);
  facts.cpu_model = cpu_model(root);
  const auto memory = parse_memory(text_of(root / "proc/meminfo"));
  if (!memory || memory->total <= 0)
    fail(ErrorKind::runtime,
         "{}: expected MemTotal and MemAvailable in kB, found none of them; write the cluster file by hand",
         (root / "proc/meminfo").string());
  facts.memory = memory->total;
  facts.memory_taken = memory->total - std::min(memory->total, memory->available);
  // Of a container: the limit ("max" where there is none) and what is used of it.
  const auto limit = number(text_of(root / "sys/fs/cgroup/memory.max"));
  if (limit && *limit > 0 && *limit < facts.memory) {
    facts.memory = *limit;
    facts.memory_taken = std::min(*limit, number(text_of(root / "sys/fs/cgroup/memory.current")).value_or(0));
  }
  return facts;
}

HostFacts this_host() {
  HostFacts facts = read_host_facts("/");
  facts.cores = std::min(facts.cores, allowed_cores());
  char name[256] = "";
  if (::gethostname(name, sizeof name - 1) == 0 && *name != '\0') facts.name = name;
  return facts;
}

void find_gpus(HostFacts& facts) {
  const CommandOutput smi = output_of(
      "nvidia-smi --query-gpu=name,memory.total,pci.bus_id --format=csv,noheader,nounits 2>/dev/null </dev/null");
  facts.gpus = parse_gpus(smi.text), facts.smi_is_late = smi.is_late, facts.smi_code = smi.code;
  const GpuTopology told = facts.gpus.empty() ? GpuTopology{} : this_host_gpus();
  const PciTopology bus = read_pci_topology();
  facts.bus_gpus = bus.gpus, facts.bus_file = bus.file;
  if (facts.gpus.empty() && !bus.gpus.empty()) {
    const DeviceInventory cuda = cuda_inventory();
    facts.gpus_from = "CUDA", facts.why_no_cuda = cuda.why_none;
    for (const DeviceInfo& device : cuda.devices)
      facts.gpus.push_back(
          {.name = device.name, .memory = device.memory_bytes, .bus_id = pci_bus_id(device.pci_bus_id)});
  }
  std::vector<std::string> bus_ids;
  for (const GpuFacts& gpu : facts.gpus)
    if (!gpu.bus_id.empty()) bus_ids.push_back(gpu.bus_id);
  facts.topology = joined_topology(told, bus_ids, bus);
}

}  // namespace rw
