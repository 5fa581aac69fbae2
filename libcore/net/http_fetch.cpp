#include "libcore/net/http_fetch.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/net/response_parser.h"
#include "libcore/net/tcp_dial.h"

namespace rw {
namespace {

class Exchange {
 public:
  Exchange(const HttpFetch& fetch, const HttpUrl& url, double until_s)
      : fetch_(fetch), url_(url), until_s_(until_s), socket_(dial_tcp(url, connect_timeout_s()).socket) {}

  HttpFetched run() {
    HttpHeaders headers = fetch_.headers;
    headers.emplace_back("Connection", "close");
    const std::string host = url_.authority();
    send(http_request_text({.method = fetch_.method,
                            .target = url_.path.empty() ? "/" : url_.path,
                            .host = host,
                            .headers = headers,
                            .body = fetch_.body}));
    return read();
  }

 private:
  double connect_timeout_s() const { return std::min(fetch_.connect_timeout_s, until_s_ - now_s()); }
  [[noreturn]] void failed(std::string_view why) const {
    fail(ErrorKind::runtime, "{} {} at {}: {}", fetch_.method, url_.path.empty() ? "/" : url_.path, url_.authority(),
         why);
  }
  [[noreturn]] void failed(int error) const { failed(std::generic_category().message(error)); }
  void wait(short events) const {
    while (true) {
      const double left_s = until_s_ - now_s();
      if (left_s <= 0) failed(fmt::format("no whole reply within {} s", fetch_.timeout_s));
      pollfd wait{.fd = socket_.fd(), .events = events, .revents = 0};
      const int n = ::poll(&wait, 1, static_cast<int>(std::min(left_s, 1e5) * 1e3) + 1);
      if (n == 1) return;
      if (n < 0 && errno != EINTR) failed(errno);
    }
  }
  // A server may reply, and close, before it has read all: what it said is worth more than the failure.
  void send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t n = ::send(socket_.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n > 0) bytes.remove_prefix(static_cast<size_t>(n));
      else if (n < 0 && (errno == EAGAIN || errno == EINTR)) wait(POLLOUT);
      else return;
    }
  }
  HttpFetched read() const {
    HttpResponseParser parser;
    if (fetch_.method == "HEAD") parser.reset(HttpResponseParser::Body::none);
    HttpFetched out;
    std::array<char, 64 << 10> buffer;
    while (true) {
      const ssize_t n = ::recv(socket_.fd(), buffer.data(), buffer.size(), 0);
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        wait(POLLIN);
        continue;
      }
      if (n < 0) failed(errno);
      std::string_view bytes(buffer.data(), static_cast<size_t>(n));
      HttpResponseParser::Step step{};
      do {
        step = n == 0 ? parser.finish() : parser.feed(bytes);
        bytes.remove_prefix(step.taken);
        out.body += step.body;
        if (static_cast<int64_t>(out.body.size()) > fetch_.max_body_bytes)
          failed(fmt::format("expected a reply of at most {} bytes, found more", fetch_.max_body_bytes));
      } while (step.event == HttpResponseParser::Event::head || step.event == HttpResponseParser::Event::body);
      if (step.event == HttpResponseParser::Event::failed) failed(parser.message());
      if (step.event != HttpResponseParser::Event::done) continue;
      out.status = parser.status();
      out.headers = parser.headers();
      if (const std::string* to = out.header("location"); out.status / 100 == 3 && to != nullptr)
        failed(fmt::format("the server redirects ({}) to {}; redirections are not followed: name that URL", out.status,
                           *to));
      return out;
    }
  }

  const HttpFetch& fetch_;
  const HttpUrl& url_;
  const double until_s_;
  const TcpSocket socket_;
};

}  // namespace

const std::string* HttpFetched::header(std::string_view lower_case_name) const {
  for (const auto& [name, value] : headers)
    if (name == lower_case_name) return &value;
  return nullptr;
}

std::string http_request_text(const HttpRequestText& r) {
  std::string out = fmt::format("{} {} HTTP/1.1\r\nHost: {}\r\n", r.method, r.target, r.host);
  for (const auto& [name, value] : r.headers) out += fmt::format("{}: {}\r\n", name, value);
  if (!r.body.empty() || r.method == "POST" || r.method == "PUT")
    out += fmt::format("Content-Length: {}\r\n", r.body.size());
  out += "\r\n";
  out += r.body;
  return out;
}

HttpFetched http_fetch(const HttpFetch& fetch) {
  const double until_s = now_s() + fetch.timeout_s;
  const HttpUrl url = parse_http_url(fetch.url);
  for (const auto& [name, value] : fetch.headers)
    if ((name + value).find_first_of("\r\n") != std::string::npos)
      fail(ErrorKind::usage, "header \"{}\": expected one line, found a line break", name.substr(0, 60));
  return Exchange(fetch, url, until_s).run();
}

}  // namespace rw
