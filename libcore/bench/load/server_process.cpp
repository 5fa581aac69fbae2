#include "libcore/bench/load/server_process.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <sstream>

namespace rw {

namespace fs = std::filesystem;

namespace {

std::string text_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::optional<int64_t> whole(std::string_view s, int base = 10) {
  int64_t v = 0;
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), v, base);
  if (error != std::errc() || end != s.data() + s.size()) return std::nullopt;
  return v;
}

struct ProcessStat {
  int64_t parent = 0;
  double ticks = 0;  // with those of children that have ended
};

// proc(5): the name is in parentheses and may hold any character; behind it state, parent, ..., and as fields 14 to 17
// utime, stime, cutime, cstime.
std::optional<ProcessStat> stat_of(int64_t pid, const fs::path& root) {
  const std::string text = text_of(root / "proc" / std::to_string(pid) / "stat");
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream in(text.substr(name_end + 1));
  const std::vector<std::string> fields{std::istream_iterator<std::string>(in), {}};
  if (fields.size() < 15) return std::nullopt;
  ProcessStat s;
  s.parent = whole(fields[1]).value_or(0);
  for (size_t i = 11; i < 15; ++i) s.ticks += static_cast<double>(whole(fields[i]).value_or(0));
  return s;
}

// Sockets that listen at the port, as /proc/PID/fd names them.
std::set<std::string> listening_sockets(int port, const fs::path& root) {
  constexpr int64_t kListen = 10;
  std::set<std::string> sockets;
  for (const char* table : {"proc/net/tcp", "proc/net/tcp6"}) {
    std::istringstream lines(text_of(root / table));
    for (std::string line; std::getline(lines, line);) {
      std::istringstream in(line);
      const std::vector<std::string> f{std::istream_iterator<std::string>(in), {}};
      if (f.size() < 10) continue;
      const size_t colon = f[1].rfind(':');
      if (colon == std::string::npos || whole(f[3], 16) != kListen) continue;
      if (whole(std::string_view(f[1]).substr(colon + 1), 16) == port) sockets.insert("socket:[" + f[9] + "]");
    }
  }
  return sockets;
}

bool holds_one(int64_t pid, const std::set<std::string>& sockets, const fs::path& root) {
  std::error_code none;
  fs::directory_iterator fd(root / "proc" / std::to_string(pid) / "fd", none);
  for (; !none && fd != fs::directory_iterator(); fd.increment(none)) {
    std::error_code gone;
    if (sockets.contains(fs::read_symlink(fd->path(), gone).string())) return true;
  }
  return false;
}

}  // namespace

bool is_this_host(const std::string& host) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_DGRAM;
  if (::getaddrinfo(host.c_str(), "9", &hints, &found) != 0) return false;
  bool is_here = false;
  for (const addrinfo* a = found; a != nullptr && !is_here; a = a->ai_next) {
    // A way that begins where it ends does not leave the host. Nothing is sent: a datagram socket only picks its way.
    const int fd = ::socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    char from[NI_MAXHOST] = "", to[NI_MAXHOST] = "";
    if (::connect(fd, a->ai_addr, a->ai_addrlen) == 0 &&
        ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) == 0 &&
        ::getnameinfo(reinterpret_cast<sockaddr*>(&own), size, from, sizeof from, nullptr, 0, NI_NUMERICHOST) == 0 &&
        ::getnameinfo(a->ai_addr, a->ai_addrlen, to, sizeof to, nullptr, 0, NI_NUMERICHOST) == 0)
      is_here = std::string_view(from) == to || std::string_view(to).starts_with("127.");
    ::close(fd);
  }
  ::freeaddrinfo(found);
  return is_here;
}

std::vector<int64_t> server_processes(int port, const fs::path& root) {
  const std::set<std::string> sockets = listening_sockets(port, root);
  if (sockets.empty()) return {};
  std::map<int64_t, ProcessStat> all;
  std::error_code none;
  for (fs::directory_iterator entry(root / "proc", none); !none && entry != fs::directory_iterator();
       entry.increment(none))
    if (const auto pid = whole(entry->path().filename().string()))
      if (const auto stat = stat_of(*pid, root)) all[*pid] = *stat;
  const int64_t self = root == "/" ? ::getpid() : 0;
  std::set<int64_t> family;
  for (const auto& [pid, stat] : all)
    if (pid != self && holds_one(pid, sockets, root)) family.insert(pid);
  const auto command_of = [&](int64_t pid) { return text_of(root / "proc" / std::to_string(pid) / "cmdline"); };
  for (const int64_t owner : std::set(family)) {
    const int64_t parent = all[owner].parent;
    if (parent < 1) continue;
    const std::string command = command_of(owner);
    for (const auto& [pid, stat] : all)
      if (pid != self && stat.parent == parent && command_of(pid) == command) family.insert(pid);
  }
  for (bool grows = true; grows;) {
    grows = false;
    for (const auto& [pid, stat] : all)
      if (pid != self && family.contains(stat.parent)) grows = family.insert(pid).second || grows;
  }
  return {family.begin(), family.end()};
}

double cpu_seconds_of(const std::vector<int64_t>& processes, const fs::path& root) {
  double ticks = 0;
  for (const int64_t pid : processes)
    if (const auto stat = stat_of(pid, root)) ticks += stat->ticks;
  const long hz = ::sysconf(_SC_CLK_TCK);
  return hz > 0 ? ticks / static_cast<double>(hz) : 0;
}

}  // namespace rw
