// A client over a plain socket, for tests: every wait ends after `kWaitSeconds`.
#pragma once
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace rw::testing {

constexpr double kWaitSeconds = 20;

inline double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Waits until `happened`; false when it has not in time.
inline bool eventually(const std::function<bool()>& happened, double seconds = kWaitSeconds) {
  for (const double until = seconds_now() + seconds; seconds_now() < until;) {
    if (happened()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return happened();
}

struct Response {
  int status = 0;
  std::string head, body;  // body: its chunks put together
  bool complete = false;   // false: the connection ended before the reply did
  std::string header(std::string_view name) const {
    const std::string key = "\r\n" + std::string(name) + ": ";
    const size_t at = head.find(key);
    if (at == std::string::npos) return {};
    return head.substr(at + key.size(), head.find("\r\n", at + 2) - at - key.size());
  }
};

class Client {
 public:
  explicit Client(int port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (fd_ < 0) throw std::runtime_error("socket");
    if (port != 0) connect(port);
  }
  Client(Client&& other) noexcept : fd_(std::exchange(other.fd_, -1)), in_(std::move(other.in_)) {}
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  ~Client() { close(); }

  void connect(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
      throw std::runtime_error("connect");
  }
  void send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return;  // the server has closed: its reply, if any, tells why
      bytes.remove_prefix(static_cast<size_t>(n));
    }
  }
  void finish_sending() { ::shutdown(fd_, SHUT_WR); }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  void reset() {  // RST
    const linger now{.l_onoff = 1, .l_linger = 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close();
  }
  void small_receive_buffer() {
    const int bytes = 4096;
    setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
  }
  // More bytes into what has been received; false: the server has closed, or none came in time.
  bool more(double seconds = kWaitSeconds) {
    pollfd wait{.fd = fd_, .events = POLLIN, .revents = 0};
    if (::poll(&wait, 1, static_cast<int>(seconds * 1e3)) != 1) return false;
    char buffer[65536];
    const ssize_t n = ::recv(fd_, buffer, sizeof buffer, 0);
    if (n > 0) in_.append(buffer, static_cast<size_t>(n));
    return n > 0;
  }
  // The server closes, with whatever bytes before.
  bool closes(double seconds = kWaitSeconds) {
    for (const double until = seconds_now() + seconds; seconds_now() < until;) {
      pollfd wait{.fd = fd_, .events = POLLIN, .revents = 0};
      if (::poll(&wait, 1, 100) == 1 && !more(0)) return true;
    }
    return false;
  }
  bool receives(std::string_view part) {
    while (in_.find(part) == std::string::npos)
      if (!more()) return false;
    return true;
  }
  const std::string& received() const { return in_; }
  void forget() { in_.clear(); }

  Response read(bool head_only = false) {
    Response r;
    size_t end;
    while ((end = in_.find("\r\n\r\n")) == std::string::npos)
      if (!more()) return r;
    r.head = in_.substr(0, end + 4);
    in_.erase(0, end + 4);
    r.status = std::atoi(r.head.c_str() + 9);
    if (head_only || r.status == 204 || r.status / 100 == 1) {
      r.complete = true;
    } else if (r.header("transfer-encoding") == "chunked") {
      for (size_t size = 1; size != 0;) {
        size_t line;
        while ((line = in_.find("\r\n")) == std::string::npos)
          if (!more()) return r;
        size = std::strtoul(in_.c_str(), nullptr, 16);
        while (in_.size() < line + 2 + size + 2)
          if (!more()) return r;
        r.body.append(in_, line + 2, size);
        in_.erase(0, line + 2 + size + 2);
      }
      r.complete = true;
    } else if (const std::string length = r.header("content-length"); !length.empty()) {
      const size_t n = std::strtoul(length.c_str(), nullptr, 10);
      while (in_.size() < n)
        if (!more()) break;
      r.complete = in_.size() >= n;
      r.body = in_.substr(0, n);
      in_.erase(0, r.body.size());
    } else {
      while (more()) {
      }
      r.body = std::exchange(in_, {});
      r.complete = true;
    }
    return r;
  }
  Response ask(std::string_view request, bool head_only = false) {
    send(request);
    return read(head_only);
  }

 private:
  int fd_;
  std::string in_;
};

inline std::string get(const std::string& path) { return "GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n"; }
inline std::string post(const std::string& path, const std::string& body) {
  return "POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

}  // namespace rw::testing
