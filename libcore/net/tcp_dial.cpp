#include "libcore/net/tcp_dial.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <system_error>

#include "libcore/base/clock.h"
#include "libcore/base/error.h"

namespace rw {
namespace {

std::string reason(int error) { return std::generic_category().message(error); }

// "" once `socket` is connected, else why not.
std::string wait_connected(const TcpSocket& socket, double until_s) {
  while (true) {
    pollfd wait{.fd = socket.fd(), .events = POLLOUT, .revents = 0};
    const double left_s = until_s - now_s();
    if (left_s <= 0) return "no answer in time";
    const int n = ::poll(&wait, 1, static_cast<int>(std::min(left_s, 1e5) * 1e3) + 1);
    if (n == 1) return tcp_failure(socket);
    if (n < 0 && errno != EINTR) return reason(errno);
  }
}

}  // namespace

TcpSocket::~TcpSocket() {
  if (fd_ >= 0) ::close(fd_);
}

std::vector<TcpAddress> resolve_tcp(const HttpUrl& url) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(url.host.c_str(), std::to_string(url.port).c_str(), &hints, &found);
  if (error != 0)
    fail(ErrorKind::runtime, "{}: cannot find the host: {}", url.authority(),
         error == EAI_SYSTEM ? reason(errno) : ::gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  std::vector<TcpAddress> addresses;
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next)
    addresses.push_back({a->ai_family, std::string(reinterpret_cast<const char*>(a->ai_addr), a->ai_addrlen)});
  return addresses;
}

TcpSocket begin_tcp(const TcpAddress& address, std::string& why) {
  TcpSocket socket(::socket(address.family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const auto failed = [&](int error) {
    why = error == EMFILE ? "too many open files; raise `ulimit -n`" : reason(error);
    return TcpSocket();
  };
  if (socket.fd() < 0) return failed(errno);
  const int on = 1;
  (void)::setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const auto* to = reinterpret_cast<const sockaddr*>(address.bytes.data());
  if (::connect(socket.fd(), to, static_cast<socklen_t>(address.bytes.size())) != 0 && errno != EINPROGRESS)
    return failed(errno);
  return socket;
}

std::string tcp_failure(const TcpSocket& socket) {
  int error = 0;
  socklen_t size = sizeof error;
  if (::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  return error == 0 ? "" : reason(error);
}

TcpDialed dial_tcp(const HttpUrl& url, double timeout_s) {
  const double until_s = now_s() + timeout_s;
  const std::vector<TcpAddress> addresses = resolve_tcp(url);
  std::string why = "it has no address";
  for (size_t i = 0; i < addresses.size(); ++i) {
    TcpSocket socket = begin_tcp(addresses[i], why);
    if (socket.fd() < 0) continue;
    // A silent address leaves time to the others.
    const double share_s = (until_s - now_s()) / static_cast<double>(addresses.size() - i);
    why = wait_connected(socket, now_s() + share_s);
    if (why.empty()) return {std::move(socket), addresses[i]};
  }
  fail(ErrorKind::runtime, "cannot connect to {}: {}; is the server running there?", url.authority(), why);
}

}  // namespace rw
