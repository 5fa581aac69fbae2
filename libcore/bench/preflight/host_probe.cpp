#include "libcore/bench/preflight/host_probe.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <sstream>

#include "libcore/base/error.h"
#include "libcore/base/files.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

// Files of /proc and /sys may be missing or refuse to be read; then empty.
std::string text_of(const fs::path& file) {
  std::error_code none;
  if (!fs::is_regular_file(file, none)) return {};
  std::string text;
  try {
    text = read_file(file);
  } catch (const Error&) {
    return {};
  }
  const size_t end = text.find_last_not_of(" \t\r\n");
  return text.substr(0, end == std::string::npos ? 0 : end + 1);
}

std::optional<int64_t> whole(const std::string& text) {
  int64_t v = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return v;
}

std::optional<double> real(const std::string& text) {
  double v = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return v;
}

std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code none;
  for (const fs::directory_entry& e : fs::directory_iterator(folder, none)) found.push_back(e.path());
  std::sort(found.begin(), found.end());
  return found;
}

// "always [madvise] never" -> madvise.
std::string chosen(const std::string& text) {
  const size_t open = text.find('['), close = text.find(']');
  return open == std::string::npos || close == std::string::npos || close < open
             ? std::string()
             : text.substr(open + 1, close - open - 1);
}

void count(RankFacts& facts, const std::string& name, const fs::path& file) {
  if (const auto n = whole(text_of(file))) facts.link_counters[name] = *n;
}

void read_links(const fs::path& root, RankFacts& facts) {
  for (const fs::path& dir : entries(root / "sys/class/net")) {
    InterfaceFacts i{.name = dir.filename().string()};
    const auto mtu = whole(text_of(dir / "mtu"));
    if (!mtu) continue;  // a file such as bonding_masters
    i.mtu = *mtu;
    const std::string state = text_of(dir / "operstate");
    i.is_up = state == "up" || state == "unknown";
    facts.interfaces.push_back(i);
    if (i.name == "lo") continue;
    for (const char* counter : {"rx_errors", "tx_errors", "rx_missed_errors", "rx_fifo_errors"})
      count(facts, i.name + " " + counter, dir / "statistics" / counter);
  }
  for (const fs::path& device : entries(root / "sys/class/infiniband")) {
    facts.has_rdma = true;
    for (const fs::path& port : entries(device / "ports")) {
      const std::string name = device.filename().string() + "/" + port.filename().string() + " ";
      for (const char* counter : {"symbol_error", "link_downed", "link_error_recovery", "port_rcv_errors"})
        count(facts, name + counter, port / "counters" / counter);
      for (const char* counter : {"out_of_sequence", "packet_seq_err", "local_ack_timeout_err"})
        count(facts, name + counter, port / "hw_counters" / counter);
    }
  }
}

void read_tcp(const fs::path& root, RankFacts& facts) {
  const fs::path ipv4 = root / "proc/sys/net/ipv4", core = root / "proc/sys/net/core";
  const std::pair<const char*, fs::path> files[] = {{"congestion_control", ipv4 / "tcp_congestion_control"},
                                                    {"tcp_rmem", ipv4 / "tcp_rmem"},
                                                    {"tcp_wmem", ipv4 / "tcp_wmem"},
                                                    {"rmem_max", core / "rmem_max"},
                                                    {"wmem_max", core / "wmem_max"}};
  for (const auto& [name, file] : files) {
    std::string text = text_of(file);
    std::replace(text.begin(), text.end(), '\t', ' ');
    if (!text.empty()) facts.tcp[name] = text;
  }
}

// Cores of the quota of this process's cgroup: version 2's cpu.max "200000 100000", version 1's two files.
double quota_of(const fs::path& root) {
  std::vector<fs::path> groups = {root / "sys/fs/cgroup", root / "sys/fs/cgroup/cpu"};
  std::istringstream lines(text_of(root / "proc/self/cgroup"));
  for (std::string line; std::getline(lines, line);)
    if (const size_t at = line.find(":/"); at != std::string::npos && at + 2 < line.size())
      for (const char* base : {"sys/fs/cgroup", "sys/fs/cgroup/cpu"})
        groups.push_back(root / base / line.substr(at + 2));
  double least = kUnknown;
  for (const fs::path& group : groups) {
    std::string quota = text_of(group / "cpu.cfs_quota_us"), period = text_of(group / "cpu.cfs_period_us");
    if (const std::string both = text_of(group / "cpu.max"); !both.empty()) {
      quota = both.substr(0, both.find(' '));
      period = both.find(' ') == std::string::npos ? "" : both.substr(both.find(' ') + 1);
    }
    const auto q = whole(quota), p = whole(period);
    if (!q || !p || *q <= 0 || *p <= 0) continue;  // "max", -1: none
    const double cores = static_cast<double>(*q) / static_cast<double>(*p);
    least = std::isnan(least) ? cores : std::min(least, cores);
  }
  return least;
}

}  // namespace

std::string default_route_interface(const std::string& text) {
  std::istringstream lines(text);
  std::string best;
  int64_t least = 0;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);  // Iface Destination Gateway Flags RefCnt Use Metric Mask ...
    std::array<std::string, 8> w;
    for (std::string& word : w) words >> word;
    const auto metric = whole(w[6]);
    if (w[1] != "00000000" || w[7] != "00000000" || !metric) continue;
    if (best.empty() || *metric < least) best = w[0], least = *metric;
  }
  return best;
}

std::map<std::string, std::string> relevant_environment(const std::vector<std::string>& variables) {
  std::map<std::string, std::string> kept;
  const auto starts = [](const std::string& name, const auto& prefixes) {
    return std::any_of(std::begin(prefixes), std::end(prefixes), [&](const char* p) { return name.starts_with(p); });
  };
  constexpr const char* kWanted[] = {"OMP_",        "GOMP_", "KMP_",    "OMPI_MCA_",  "NCCL_",          "CUDA_",
                                     "RANKWRIGHT_", "UCX_",  "MALLOC_", "LD_PRELOAD", "LD_LIBRARY_PATH"};
  // Set by Open MPI's launcher, some of them apart for each rank or host.
  constexpr const char* kLaunchers[] = {"OMPI_MCA_orte_",
                                        "OMPI_MCA_ess",
                                        "OMPI_MCA_pmix",
                                        "OMPI_MCA_initial_wdir",
                                        "OMPI_MCA_shmem_RUNTIME_QUERY_hint",
                                        "OMPI_MCA_prte_",
                                        "CUDA_VISIBLE_DEVICES"};
  for (const std::string& variable : variables) {
    const size_t equals = variable.find('=');
    const std::string name = variable.substr(0, equals);
    if (equals != std::string::npos && starts(name, kWanted) && !starts(name, kLaunchers))
      kept[name] = variable.substr(equals + 1);
  }
  return kept;
}

std::vector<GpuState> parse_gpu_states(const std::string& csv) {
  std::vector<GpuState> gpus;
  std::istringstream lines(csv);
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string> cells;
    std::istringstream parts(line);
    for (std::string cell; std::getline(parts, cell, ',');) {
      const size_t begin = cell.find_first_not_of(" \t\r"), end = cell.find_last_not_of(" \t\r");
      cells.push_back(begin == std::string::npos ? "" : cell.substr(begin, end - begin + 1));
    }
    if (cells.size() != 5 && cells.size() != 6) continue;
    const auto mib = whole(cells[1]);
    if (cells[0].empty() || !mib || *mib <= 0 || *mib >= (int64_t{1} << 40)) continue;
    gpus.push_back({.name = cells[0],
                    .memory = *mib << 20,
                    .clock_mhz = real(cells[2]).value_or(kUnknown),
                    .ecc_errors = real(cells[3]).value_or(kUnknown),
                    .temperature = real(cells[4]).value_or(kUnknown),
                    .bus_id = cells.size() == 6 ? pci_bus_id(cells[5]) : ""});
  }
  return gpus;
}

double steal_share(const std::string& before, const std::string& after) {
  const auto a = parse_cpu_ticks(before), b = parse_cpu_ticks(after);
  constexpr int64_t kFewTicks = 10;
  if (!a || !b || b->total() - a->total() < kFewTicks) return kUnknown;
  return static_cast<double>(std::max<int64_t>(0, b->steal - a->steal)) / static_cast<double>(b->total() - a->total());
}

void read_host(const fs::path& root, RankFacts& facts) {
  read_links(root, facts);
  read_tcp(root, facts);
  facts.default_interface = default_route_interface(text_of(root / "proc/net/route"));
  facts.quota_cores = quota_of(root);
  facts.governor = text_of(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  facts.huge_pages = chosen(text_of(root / "sys/kernel/mm/transparent_hugepage/enabled"));
  if (const auto load = parse_load_average(text_of(root / "proc/loadavg"))) facts.load = load->one_minute;
  if (const int64_t cpus = parse_cpu_count(text_of(root / "proc/stat")); cpus > 0) facts.host_cores = cpus;
  if (const auto memory = parse_memory(text_of(root / "proc/meminfo"))) facts.memory_available = memory->available;
  // Of a container: what its limit leaves.
  const auto limit = whole(text_of(root / "sys/fs/cgroup/memory.max"));
  const auto used = whole(text_of(root / "sys/fs/cgroup/memory.current"));
  if (limit && used) facts.memory_available = std::min(facts.memory_available, std::max<int64_t>(0, *limit - *used));
}

}  // namespace rw
