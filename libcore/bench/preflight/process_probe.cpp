// What a rank can tell of its own process, and what it has to try.
#include <fcntl.h>
#include <netdb.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <thread>

#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/hash.h"
#include "libcore/base/version.h"
#include "libcore/bench/preflight/hdf5_version.h"
#include "libcore/bench/preflight/host_probe.h"
#include "libcore/bench/record/machine.h"
#include "libcore/plan/measure/host_facts.h"
#include "libcore/plan/measure/joined_topology.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

int64_t soft_limit(__rlimit_resource_t what) {
  rlimit limit{};
  if (::getrlimit(what, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return -1;
  return static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, INT64_MAX));
}

int64_t free_bytes(const fs::path& dir) {
  std::error_code error;
  const fs::space_info space = fs::space(dir, error);
  return error || space.available > INT64_MAX ? -1 : static_cast<int64_t>(space.available);
}

std::string program_digest() {
  try {
    const MappedFile program("/proc/self/exe");
    return hex64(hash64(program.data(), program.size()));
  } catch (const Error&) {
    return {};
  }
}

// A name's first address as text; "" for none.
std::string address_of(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (::getaddrinfo(host.c_str(), nullptr, &hints, &list) != 0 || list == nullptr) return {};
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, ::freeaddrinfo);
  char text[NI_MAXHOST] = "";
  if (::getnameinfo(list->ai_addr, list->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) return {};
  return text;
}

class OpenFile {
 public:
  explicit OpenFile(const fs::path& path) : fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)) {}
  ~OpenFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// Why not, or "".
std::string write_and_sync(const fs::path& path, int64_t bytes) {
  constexpr size_t kPiece = 1 << 20;
  const OpenFile file(path);
  if (file.get() < 0) return std::strerror(errno);
  const std::vector<char> piece(kPiece, 'x');
  for (int64_t done = 0; done < bytes; done += static_cast<int64_t>(kPiece))
    for (size_t at = 0; at < kPiece;) {
      const ssize_t n = ::write(file.get(), piece.data() + at, kPiece - at);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return n < 0 ? std::strerror(errno) : "nothing was written";
      at += static_cast<size_t>(n);
    }
  return ::fsync(file.get()) == 0 ? "" : std::strerror(errno);
}

}  // namespace

void read_process(RankFacts& facts) {
  const MachineIdentity machine = machine_identity();
  facts.binary = program_digest();
  facts.versions = {{"Rankwright", version()},      {"MPI", machine.mpi},         {"HDF5", hdf5_version()},
                    {"compiler", machine.compiler}, {"kernels", machine.backend}, {"Linux", machine.kernel}};
  std::vector<std::string> variables;
  for (char** v = environ; *v != nullptr; ++v) variables.emplace_back(*v);
  facts.environment = relevant_environment(variables);
  facts.memlock_bytes = soft_limit(RLIMIT_MEMLOCK);
  facts.open_files = soft_limit(RLIMIT_NOFILE);
  facts.processes = soft_limit(RLIMIT_NPROC);
  facts.shm_free = free_bytes("/dev/shm");
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0)
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &set)) facts.cores.push_back(cpu);
  if (const auto threads = facts.environment.find("OMP_NUM_THREADS"); threads != facts.environment.end())
    facts.threads = std::clamp<int64_t>(std::atoll(threads->second.c_str()), 1, 1 << 20);
  const CommandOutput smi = output_of(
      "nvidia-smi --query-gpu=name,memory.total,clocks.max.sm,ecc.errors.uncorrected.volatile.total,"
      "temperature.gpu,pci.bus_id --format=csv,noheader,nounits 2>/dev/null </dev/null");
  facts.gpus = parse_gpu_states(smi.text), facts.smi_is_late = smi.is_late;
  const PciTopology bus = read_pci_topology();
  facts.bus_gpus = bus.gpus, facts.bus_file = bus.file;
  std::vector<std::string> bus_ids;
  for (const GpuState& gpu : facts.gpus)
    if (!gpu.bus_id.empty()) bus_ids.push_back(gpu.bus_id);
  facts.topology = joined_topology(facts.gpus.empty() ? GpuTopology{} : this_host_gpus(), bus_ids, bus);
}

void try_disk(const std::string& dir, RankFacts& facts) {
  constexpr int64_t kBytes = 16 << 20;
  facts.disk_dir = dir;
  std::error_code error;
  make_directories(dir, error);
  facts.disk_free = free_bytes(dir);
  const fs::path path = fs::path(dir) / (".preflight-" + facts.host + "-" + std::to_string(::getpid()));
  const double start = now_s();
  facts.disk_error = error ? error.message() : write_and_sync(path, kBytes);
  if (facts.disk_error.empty()) facts.disk_mb_per_s = static_cast<double>(kBytes) / (now_s() - start) * 1e-6;
  fs::remove(path, error);
}

std::map<std::string, std::string> resolve_hosts(const std::vector<std::string>& hosts, double timeout_s) {
  // A resolver may wait for minutes and cannot be told to stop: each name has a thread that is left behind when it is
  // late. The promise outlives it.
  std::map<std::string, std::future<std::string>> pending;
  for (const std::string& host : hosts) {
    if (pending.contains(host)) continue;
    auto promise = std::make_shared<std::promise<std::string>>();
    pending[host] = promise->get_future();
    std::thread([promise, host] { promise->set_value(address_of(host)); }).detach();
  }
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(timeout_s);
  std::map<std::string, std::string> found;
  for (auto& [host, future] : pending)
    found[host] = future.wait_until(until) == std::future_status::ready ? future.get() : "";
  return found;
}

}  // namespace rw
