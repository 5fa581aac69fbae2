// TCP connections to a server, by name or address.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "libcore/net/url.h"

namespace rw {

// An open socket; closed with its owner. Non-blocking, without Nagle's delay.
class TcpSocket {
 public:
  TcpSocket() = default;
  explicit TcpSocket(int fd) : fd_(fd) {}
  TcpSocket(TcpSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  TcpSocket& operator=(TcpSocket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~TcpSocket();
  int fd() const { return fd_; }  // -1: none

 private:
  int fd_ = -1;
};

struct TcpAddress {
  int family = 0;
  std::string bytes;  // a sockaddr
};
// All addresses of a host, in the order to try them. Error{runtime} for a name nobody knows. Blocks as long as the
// system's resolver does.
std::vector<TcpAddress> resolve_tcp(const HttpUrl& url);

// A connection that is being made: writable once it is there (or has failed: see tcp_failure). An empty socket and
// `why` when it failed at once.
TcpSocket begin_tcp(const TcpAddress& address, std::string& why);
// Why a connection could not be made, "" when it could.
std::string tcp_failure(const TcpSocket& socket);

// The first of the addresses that answers. Error{runtime} names host, port and the reason.
struct TcpDialed {
  TcpSocket socket;
  TcpAddress address;
};
TcpDialed dial_tcp(const HttpUrl& url, double timeout_s);

}  // namespace rw
