#include "scripts/bench/null_server.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <queue>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "libcore/base/clock.h"
#include "libcore/base/error.h"

namespace rw {
namespace {

struct Peer {
  std::string in;
  int64_t left = 0;  // chunks
};

class Streamer {
 public:
  Streamer(int listener, const NullServerSpec& spec)
      : spec_(spec),
        listener_(listener),
        poll_(::epoll_create1(0)),
        timer_(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK)) {
    watch(listener_);
    watch(timer_);
  }

  [[noreturn]] void run() {
    std::vector<epoll_event> events(256);
    while (true) {
      arm();
      const int n = ::epoll_wait(poll_, events.data(), static_cast<int>(events.size()), -1);
      for (int i = 0; i < n; ++i) {
        const int fd = events[static_cast<size_t>(i)].data.fd;
        uint64_t times;
        if (fd == listener_) accept_all();
        else if (fd == timer_) (void)!::read(timer_, &times, sizeof times);
        else read(fd);
      }
      send_due();
    }
  }

 private:
  using Due = std::pair<double, int>;

  void watch(int fd) const {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    ::epoll_ctl(poll_, EPOLL_CTL_ADD, fd, &event);
  }

  void accept_all() {
    for (int fd; (fd = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK)) >= 0;) {
      const int on = 1;
      ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      peers_[fd] = {};
      watch(fd);
    }
  }

  void read(int fd) {
    char buffer[16384];
    const ssize_t n = ::recv(fd, buffer, sizeof buffer, 0);
    Peer& peer = peers_[fd];
    if (n <= 0) {
      peers_.erase(fd);
      ::close(fd);
      return;
    }
    peer.in.append(buffer, static_cast<size_t>(n));
    constexpr std::string_view kLength = "Content-Length: ";
    const size_t end = peer.in.find("\r\n\r\n"), at = peer.in.find(kLength);
    if (end == std::string::npos || at > end) return;
    if (peer.in.size() < end + 4 + std::strtoul(peer.in.c_str() + at + kLength.size(), nullptr, 10)) return;
    peer.in.clear();
    peer.left = spec_.tokens;
    due_.emplace(now_s() + spec_.gap_s, fd);
    send(fd, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
  }

  void send_due() {
    for (double now = now_s(); !due_.empty() && due_.top().first <= now; now = now_s()) {
      const auto [at, fd] = due_.top();
      due_.pop();
      const auto peer = peers_.find(fd);
      if (peer == peers_.end() || peer->second.left == 0) continue;
      const int64_t left = --peer->second.left;
      body_.clear();
      fmt::format_to(std::back_inserter(body_),
                     "data: {{\"id\":\"cmpl-1234567890abcdef\",\"object\":\"text_completion\",\"created\":1764500000,"
                     "\"model\":\"null\",\"choices\":[{{\"index\":0,\"text\":\"{:0{}.6f}\",\"logprobs\":null,"
                     "\"finish_reason\":{},\"token_ids\":[{}]}}]}}\n\n",
                     now, kNullTimeDigits, left == 0 ? "\"length\"" : "null", left);
      chunk_.clear();
      fmt::format_to(std::back_inserter(chunk_), "{:x}\r\n{}\r\n", body_.size(),
                     std::string_view(body_.data(), body_.size()));
      if (left == 0) chunk_.append(std::string_view("e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"));
      else due_.emplace(at + spec_.gap_s, fd);
      send(fd, {chunk_.data(), chunk_.size()});
    }
  }

  // A client that does not keep up with a few hundred bytes a second is not measured.
  static void send(int fd, std::string_view bytes) { (void)!::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL); }

  void arm() {
    if (due_.empty()) return;
    const double at = due_.top().first, whole = std::floor(at);
    itimerspec when{};
    when.it_value.tv_sec = static_cast<time_t>(whole);
    when.it_value.tv_nsec = static_cast<long>((at - whole) * 1e9) + 1;
    ::timerfd_settime(timer_, TFD_TIMER_ABSTIME, &when, nullptr);
  }

  const NullServerSpec spec_;
  const int listener_, poll_, timer_;
  std::unordered_map<int, Peer> peers_;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
  fmt::memory_buffer body_, chunk_;
};

}  // namespace

NullServer start_null_server(const NullServerSpec& spec) {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const where = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof address;
  if (::bind(listener, where, size) != 0 || ::listen(listener, 4096) != 0 || ::getsockname(listener, where, &size) != 0)
    fail(ErrorKind::runtime, "null server: cannot listen on 127.0.0.1");
  const pid_t process = ::fork();
  if (process < 0) fail(ErrorKind::runtime, "null server: cannot fork");
  if (process == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    Streamer(listener, spec).run();
  }
  ::close(listener);
  return {process, ntohs(address.sin_port)};
}

double stop_null_server(const NullServer& server) {
  ::kill(server.process, SIGKILL);
  rusage used{};
  ::wait4(server.process, nullptr, 0, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

}  // namespace rw
