#include "tests/bench/load/fake_server.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "libcore/base/clock.h"

namespace rw::testing {

std::string FakeRequest::header(std::string_view name) const {
  const std::string key = "\r\n" + std::string(name) + ": ";
  const size_t at = head.find(key);
  if (at == std::string::npos) return "";
  return head.substr(at + key.size(), head.find("\r\n", at + 2) - at - key.size());
}

FakeServer::FakeServer(Script script, int64_t max_accepts)
    : script_(std::move(script)), listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const where = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof address;
  if (::bind(listener_, where, size) != 0 || ::listen(listener_, 512) != 0 || ::pipe(stop_pipe_) != 0 ||
      ::getsockname(listener_, where, &size) != 0)
    throw std::runtime_error("no fake server");
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this, max_accepts] { accept_all(max_accepts); });
}

FakeServer::~FakeServer() {
  ::close(stop_pipe_[1]);
  acceptor_.join();
  for (std::thread& t : connections_) t.join();
  ::close(stop_pipe_[0]);
}

std::string FakeServer::url() const { return fmt::format("http://127.0.0.1:{}", port_); }

std::vector<FakeRequest> FakeServer::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

void FakeServer::accept_all(int64_t max_accepts) {
  for (int64_t n = 0; n < max_accepts; ++n) {
    pollfd wait[2] = {{.fd = listener_, .events = POLLIN, .revents = 0},
                      {.fd = stop_pipe_[0], .events = POLLIN, .revents = 0}};
    ::poll(wait, 2, -1);
    if (wait[1].revents != 0) break;
    const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) break;
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    connections_.emplace_back([this, fd, n] { serve(fd, n); });
  }
  ::close(listener_);
}

void FakeServer::serve(int fd, int64_t connection) {
  std::string in;
  FakeRequest request;
  request.connection = connection;
  while (read_request(fd, in, request)) {
    {
      const std::lock_guard lock(mutex_);
      request.number = static_cast<int64_t>(requests_.size());
      request.at_once = ++under_way_;
      request.at_s = now_s();
      requests_.push_back(request);
    }
    const FakeReply reply = script_(request);
    const bool sent = send_all(fd, reply);
    if (!sent) ++hang_ups_;
    if (!sent || reply.end != FakeEnd::keep) {
      const linger now{.l_onoff = 1, .l_linger = 0};
      if (reply.end == FakeEnd::reset) ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
      break;
    }
  }
  ::close(fd);
}

bool FakeServer::read_request(int fd, std::string& in, FakeRequest& request) const {
  while (true) {
    const size_t end = in.find("\r\n\r\n");
    if (end != std::string::npos) {
      request.head = in.substr(0, end + 2);
      const size_t length = std::strtoul(request.header("Content-Length").c_str(), nullptr, 10);
      if (in.size() >= end + 4 + length) {
        request.body = in.substr(end + 4, length);
        in.erase(0, end + 4 + length);
        return true;
      }
    }
    pollfd wait[2] = {{.fd = fd, .events = POLLIN, .revents = 0},
                      {.fd = stop_pipe_[0], .events = POLLIN, .revents = 0}};
    ::poll(wait, 2, -1);
    if (wait[1].revents != 0) return false;
    char buffer[16384];
    const ssize_t n = ::recv(fd, buffer, sizeof buffer, 0);
    if (n <= 0) return false;
    in.append(buffer, static_cast<size_t>(n));
  }
}

// False when the peer has gone or the server ends.
bool FakeServer::pause(int fd, double seconds) const {
  const double until_s = now_s() + seconds;
  while (true) {
    const double left_s = until_s - now_s();
    if (left_s <= 0) return true;
    pollfd wait[2] = {{.fd = fd, .events = POLLRDHUP, .revents = 0},
                      {.fd = stop_pipe_[0], .events = POLLIN, .revents = 0}};
    if (::poll(wait, 2, static_cast<int>(left_s * 1e3) + 1) > 0) return false;
  }
}

bool FakeServer::send_all(int fd, const FakeReply& reply) {
  for (size_t i = 0; i < reply.pieces.size(); ++i) {
    const FakePiece& piece = reply.pieces[i];
    if (!pause(fd, piece.pause_s)) return false;
    if (i + 1 == reply.pieces.size()) {  // before the client can ask for more
      const std::lock_guard lock(mutex_);
      --under_way_;
    }
    for (std::string_view left = piece.bytes; !left.empty();) {
      const ssize_t n = ::send(fd, left.data(), left.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      left.remove_prefix(static_cast<size_t>(n));
    }
  }
  return true;
}

std::string fake_head(int status, std::string_view headers) {
  return fmt::format("HTTP/1.1 {} X\r\n{}\r\n", status, headers);
}
std::string fake_chunk(std::string_view bytes) { return fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes); }

FakeReply fake_whole(int status, std::string_view body, std::string_view headers) {
  const std::string head = fake_head(status, fmt::format("{}Content-Length: {}\r\n", headers, body.size()));
  return {.pieces = {{0, head + std::string(body)}}};
}

FakeReply fake_stream(const std::vector<FakePiece>& events, std::string_view headers) {
  FakeReply reply;
  reply.pieces.push_back(
      {0, fake_head(200, fmt::format("Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n{}", headers))});
  for (const FakePiece& e : events) reply.pieces.push_back({e.pause_s, fake_chunk("data: " + e.bytes + "\n\n")});
  reply.pieces.back().bytes += fake_chunk("");
  return reply;
}

std::string fake_text(std::string_view text) {
  return fmt::format(R"({{"id":"cmpl-1","choices":[{{"index":0,"text":"{}","finish_reason":null}}]}})", text);
}
std::string fake_last(int64_t prompt_tokens, int64_t completion_tokens) {
  return fmt::format(R"({{"id":"cmpl-1","choices":[{{"index":0,"text":"","finish_reason":"length"}}],)"
                     R"("usage":{{"prompt_tokens":{},"completion_tokens":{}}}}})",
                     prompt_tokens, completion_tokens);
}

}  // namespace rw::testing
