#include "libcore/telemetry/resources.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "libcore/base/clock.h"
#include "libcore/telemetry/json_lines.h"

namespace rw {
namespace {

// Files under /proc have no size to ask for. What cannot be read is empty.
std::string read_text(const std::filesystem::path& path) {
  constexpr size_t kMost = 4 << 20;
  std::string text;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return text;
  char piece[8192];
  for (ssize_t n; text.size() < kMost && (n = ::read(fd, piece, sizeof piece)) > 0;)
    text.append(piece, static_cast<size_t>(n));
  ::close(fd);
  return text;
}

void read_clocks(const std::filesystem::path& sys, HostCounters& host) {
  double sum = 0, least = 0;
  int64_t n = 0;
  for (int64_t cpu = 0; cpu < std::max<int64_t>(host.cpus, 1); ++cpu) {
    const auto file = sys / "devices/system/cpu" / ("cpu" + std::to_string(cpu)) / "cpufreq/scaling_cur_freq";
    const std::optional<double> mhz = parse_clock_mhz(read_text(file));
    if (!mhz) break;  // a host whose first CPU does not say has none that does
    sum += *mhz;
    least = n == 0 ? *mhz : std::min(least, *mhz);
    ++n;
  }
  if (n == 0) return;
  host.clock_mhz_mean = sum / static_cast<double>(n);
  host.clock_mhz_min = least;
}

HostCounters read_all(const ResourceOptions& options) {
  const auto proc = [&](const char* name) { return read_text(options.proc / name); };
  HostCounters host;
  const std::string stat = proc("stat");
  host.cpu = parse_cpu_ticks(stat);
  host.cpus = parse_cpu_count(stat);
  host.load = parse_load_average(proc("loadavg"));
  host.memory = parse_memory(proc("meminfo"));
  host.interfaces = parse_interfaces(proc("net/dev"));
  host.tcp_retransmits = parse_tcp_retransmits(proc("net/snmp"));
  host.disks = parse_disks(proc("diskstats"));
  const auto add_process = [&](int64_t pid, const std::string& folder) {
    if (const auto bytes = parse_resident_bytes(read_text(options.proc / folder / "status")))
      host.resident_bytes[pid] = *bytes;
  };
  add_process(::getpid(), "self");
  for (const int64_t pid : options.pids) add_process(pid, std::to_string(pid));
  read_clocks(options.sys, host);
  return host;
}

}  // namespace

HostCounters read_host_counters(const ResourceOptions& options) {
  try {
    return read_all(options);
  } catch (const std::exception&) {  // out of memory
    return {};
  }
}

struct ResourceSampler::State {
  ResourceOptions options;
  const std::atomic<int64_t>* step;
  JsonLines lines;
  std::mutex mutex;
  std::condition_variable woken;
  bool ending = false;
  std::thread thread;

  // True when it is time to end.
  bool sleep_until(std::chrono::steady_clock::time_point when) {
    std::unique_lock lock(mutex);
    return woken.wait_until(lock, when, [&] { return ending; });
  }

  void write_line(const HostCounters& before, const HostCounters& after, double from_s, double to_s) {
    Json line = {{"time", utc_timestamp()},
                 {"clock_s", to_s},
                 {"step", step != nullptr ? step->load(std::memory_order_relaxed) : 0},
                 {"host", options.host}};
    line.update(resource_line(before, after, to_s - from_s));
    lines.write(line);
  }

  void run() {
    using std::chrono::steady_clock;
    const auto interval =
        std::chrono::duration_cast<steady_clock::duration>(std::chrono::duration<double>(options.interval_s));
    HostCounters before = read_host_counters(options);
    double from_s = now_s();
    auto next = steady_clock::now();
    for (bool last = false; !last;) {
      // After a pause of the whole host the rhythm goes on from now instead of catching up.
      next = std::max(next + interval, steady_clock::now());
      last = sleep_until(next);
      HostCounters after = read_host_counters(options);
      const double to_s = now_s();
      try {
        write_line(before, after, from_s, to_s);
      } catch (const std::exception&) {  // out of memory: this line is lost
      }
      before = std::move(after);
      from_s = to_s;
    }
  }
};

ResourceSampler::ResourceSampler(const ResourceOptions& options, const std::atomic<int64_t>* step)
    : state_(new State{.options = options, .step = step, .lines = JsonLines(options.file)}) {
  state_->options.interval_s = std::clamp(options.interval_s, 1e-3, 86400.0);
  // The thread inherits the mask: a stop signal must reach a thread that is not on its way out.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    state_->thread = std::thread([s = state_.get()] { s->run(); });
  } catch (...) {
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

ResourceSampler::~ResourceSampler() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->ending = true;
  }
  state_->woken.notify_all();
  state_->thread.join();
}

}  // namespace rw
