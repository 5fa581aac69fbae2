#include "libcore/telemetry/host_counters.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <vector>

namespace rw {
namespace {

constexpr int64_t kSectorBytes = 512;  // of /proc/diskstats, whatever the disk's own
constexpr int64_t kMostUnits = INT64_MAX / 1024;

std::string_view next_line(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

std::string_view next_word(std::string_view& line) {
  const size_t begin = std::min(line.find_first_not_of(" \t\r"), line.size());
  line.remove_prefix(begin);
  const size_t end = std::min(line.find_first_of(" \t\r"), line.size());
  const std::string_view word = line.substr(0, end);
  line.remove_prefix(end);
  return word;
}

// A whole word that is a count, small enough that no unit makes it overflow.
std::optional<int64_t> count_of(std::string_view word) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size() || value < 0 || value > kMostUnits) return std::nullopt;
  return value;
}

// The counts at the head of a line.
std::vector<int64_t> counts_of(std::string_view line) {
  std::vector<int64_t> counts;
  while (const std::optional<int64_t> c = count_of(next_word(line))) counts.push_back(*c);
  return counts;
}

// "Name:   123 kB" -> bytes.
std::optional<int64_t> kib_of(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    std::string_view line = next_line(text);
    if (next_word(line) != name) continue;
    const std::optional<int64_t> count = count_of(next_word(line));
    if (!count || next_word(line) != "kB") return std::nullopt;
    return *count * 1024;
  }
  return std::nullopt;
}

bool all_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// sda1 of sda; nvme0n1p2 of nvme0n1, mmcblk0p1 of mmcblk0.
bool is_partition_of(std::string_view name, std::string_view disk) {
  if (name.size() <= disk.size() || name.substr(0, disk.size()) != disk) return false;
  std::string_view rest = name.substr(disk.size());
  if (const char last = disk.back(); last >= '0' && last <= '9') {
    if (rest.front() != 'p') return false;
    rest.remove_prefix(1);
  }
  return all_digits(rest);
}

int64_t grown(int64_t before, int64_t after) { return std::max<int64_t>(0, after - before); }

double share(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

}  // namespace

std::optional<CpuTicks> parse_cpu_ticks(std::string_view text) {
  while (!text.empty()) {
    std::string_view line = next_line(text);
    if (next_word(line) != "cpu") continue;
    const std::vector<int64_t> t = counts_of(line);  // user nice system idle iowait irq softirq steal guest guest_nice
    if (t.size() < 8) return std::nullopt;           // guest time is part of user
    return CpuTicks{.busy = t[0] + t[1] + t[2] + t[5] + t[6], .idle = t[3], .io_wait = t[4], .steal = t[7]};
  }
  return std::nullopt;
}

int64_t parse_cpu_count(std::string_view text) {
  int64_t n = 0;
  while (!text.empty()) {
    std::string_view line = next_line(text);
    const std::string_view word = next_word(line);
    if (word.substr(0, 3) == "cpu" && all_digits(word.substr(3))) ++n;
  }
  return n;
}

std::optional<LoadAverage> parse_load_average(std::string_view text) {
  std::string_view line = next_line(text);
  LoadAverage load;
  const std::string_view one = next_word(line);
  const auto [end, error] = std::from_chars(one.data(), one.data() + one.size(), load.one_minute);
  if (error != std::errc() || end != one.data() + one.size() || !(load.one_minute >= 0 && load.one_minute < 1e9))
    return std::nullopt;
  next_word(line);
  next_word(line);
  const std::string_view running = next_word(line);  // "3/345"
  const std::optional<int64_t> count = count_of(running.substr(0, running.find('/')));
  if (!count || running.find('/') == std::string_view::npos) return std::nullopt;
  load.running = *count;
  return load;
}

std::optional<MemoryBytes> parse_memory(std::string_view text) {
  const std::optional<int64_t> total = kib_of(text, "MemTotal:"), available = kib_of(text, "MemAvailable:");
  if (!total || !available) return std::nullopt;
  const int64_t swap = kib_of(text, "SwapTotal:").value_or(0);
  return MemoryBytes{.total = *total,
                     .available = *available,
                     .dirty = kib_of(text, "Dirty:").value_or(0),
                     .swap_used = grown(kib_of(text, "SwapFree:").value_or(swap), swap)};
}

std::map<std::string, InterfaceCounters> parse_interfaces(std::string_view text) {
  std::map<std::string, InterfaceCounters> found;
  while (!text.empty()) {
    std::string_view line = next_line(text);
    const size_t colon = line.rfind(':');  // a name may hold colons, its counters do not
    if (colon == std::string_view::npos) continue;
    std::string_view head = line.substr(0, colon);
    const std::string_view name = next_word(head);
    const std::vector<int64_t> c = counts_of(line.substr(colon + 1));
    // Received: bytes packets errs drop fifo frame compressed multicast; sent: bytes packets errs drop ...
    if (name.empty() || c.size() < 12) continue;
    found[std::string(name)] = {.received_bytes = c[0],
                                .sent_bytes = c[8],
                                .received_dropped = c[3],
                                .sent_dropped = c[11],
                                .errors = c[2] + c[10]};
  }
  return found;
}

std::optional<int64_t> parse_tcp_retransmits(std::string_view text) {
  std::string_view names;
  while (!text.empty()) {
    std::string_view line = next_line(text);
    if (next_word(line) != "Tcp:") continue;
    if (names.empty()) {
      names = line;
      continue;
    }
    while (true) {
      const std::string_view name = next_word(names), value = next_word(line);
      if (name.empty() || value.empty()) return std::nullopt;
      if (name == "RetransSegs") return count_of(value);
    }
  }
  return std::nullopt;
}

std::map<std::string, DiskCounters> parse_disks(std::string_view text) {
  std::map<std::string, DiskCounters> found;
  while (!text.empty()) {
    std::string_view line = next_line(text);
    next_word(line);
    next_word(line);
    const std::string_view name = next_word(line);
    // reads, merged, sectors, ms; writes, merged, sectors, ms; in flight, ms busy, ...
    const std::vector<int64_t> c = counts_of(line);
    if (name.empty() || c.size() < 10 || name.substr(0, 4) == "loop" || name.substr(0, 3) == "ram") continue;
    found[std::string(name)] = {
        .read_bytes = c[2] * kSectorBytes, .written_bytes = c[6] * kSectorBytes, .busy_ms = c[9]};
  }
  std::vector<std::string> names;
  for (const auto& [name, counters] : found) names.push_back(name);
  for (const std::string& name : names)
    for (const std::string& disk : names)
      if (is_partition_of(name, disk)) found.erase(name);
  return found;
}

std::optional<int64_t> parse_resident_bytes(std::string_view text) { return kib_of(text, "VmRSS:"); }

std::optional<double> parse_clock_mhz(std::string_view text) {
  std::string_view line = next_line(text);
  const std::optional<int64_t> khz = count_of(next_word(line));
  if (!khz || *khz == 0 || !next_word(line).empty()) return std::nullopt;
  return static_cast<double>(*khz) / 1000;
}

Json resource_line(const HostCounters& before, const HostCounters& after, double seconds) {
  Json line = {{"interval_s", seconds}};
  if (before.cpu && after.cpu) {
    const CpuTicks &a = *before.cpu, &b = *after.cpu;
    const int64_t busy = grown(a.busy, b.busy), idle = grown(a.idle, b.idle), io_wait = grown(a.io_wait, b.io_wait),
                  steal = grown(a.steal, b.steal), total = busy + idle + io_wait + steal;
    line["cpu"] = {{"cpus", after.cpus},
                   {"busy", share(busy, total)},
                   {"io_wait", share(io_wait, total)},
                   {"steal", share(steal, total)}};
  }
  if (after.load) {
    line["load_average"] = after.load->one_minute;
    line["run_queue"] = after.load->running;
  }
  if (after.memory)
    line["memory_bytes"] = {{"total", after.memory->total},
                            {"available", after.memory->available},
                            {"dirty", after.memory->dirty},
                            {"swap_used", after.memory->swap_used}};
  Json network = Json::object(), disks = Json::object(), processes = Json::object();
  for (const auto& [name, b] : after.interfaces)
    if (const auto it = before.interfaces.find(name); it != before.interfaces.end()) {
      const InterfaceCounters& a = it->second;
      network[name] = {{"received_bytes", grown(a.received_bytes, b.received_bytes)},
                       {"sent_bytes", grown(a.sent_bytes, b.sent_bytes)},
                       {"dropped", grown(a.received_dropped + a.sent_dropped, b.received_dropped + b.sent_dropped)},
                       {"errors", grown(a.errors, b.errors)}};
    }
  line["network"] = network;
  if (before.tcp_retransmits && after.tcp_retransmits)
    line["tcp_retransmits"] = grown(*before.tcp_retransmits, *after.tcp_retransmits);
  for (const auto& [name, b] : after.disks)
    if (const auto it = before.disks.find(name); it != before.disks.end()) {
      const DiskCounters& a = it->second;
      const double busy_s = static_cast<double>(grown(a.busy_ms, b.busy_ms)) / 1000;
      disks[name] = {{"read_bytes", grown(a.read_bytes, b.read_bytes)},
                     {"written_bytes", grown(a.written_bytes, b.written_bytes)},
                     {"busy", seconds > 0 ? std::min(1.0, busy_s / seconds) : 0.0}};
    }
  line["disks"] = disks;
  if (after.clock_mhz_mean > 0) line["clock_mhz"] = {{"mean", after.clock_mhz_mean}, {"min", after.clock_mhz_min}};
  for (const auto& [pid, bytes] : after.resident_bytes) processes[std::to_string(pid)] = bytes;
  line["resident_bytes"] = processes;
  return line;
}

}  // namespace rw
