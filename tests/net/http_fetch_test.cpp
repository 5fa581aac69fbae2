// The client against our server, and against sockets that say what no server should.
#include "libcore/net/http_fetch.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "libcore/base/error.h"
#include "libcore/net/tcp_dial.h"
#include "libcore/net/url.h"
#include "tests/net/test_server.h"

using namespace rw;
using namespace rw::testing;

namespace {

// Takes one connection, reads a request's head, says `bytes` and closes, or keeps silent until it is destroyed.
class OneReply {
 public:
  enum class Then : uint8_t { close, silence };
  explicit OneReply(std::string bytes, Then then = Then::close) : listener_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const where = reinterpret_cast<sockaddr*>(&address);
    if (::bind(listener_, where, size) != 0 || ::listen(listener_, 8) != 0 ||
        ::getsockname(listener_, where, &size) != 0)
      throw std::runtime_error("no listener");
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this, bytes = std::move(bytes), then] {
      const int fd = ::accept(listener_, nullptr, nullptr);
      std::string in;
      for (char c; in.find("\r\n\r\n") == std::string::npos && ::recv(fd, &c, 1, 0) == 1;) in += c;
      (void)!::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      char rest;
      if (then == Then::silence) (void)!::recv(fd, &rest, 1, 0);  // until the client gives up
      ::close(fd);
    });
  }
  ~OneReply() {
    thread_.join();
    ::close(listener_);
  }
  std::string url(const std::string& path = "/x") const { return "http://127.0.0.1:" + std::to_string(port_) + path; }

 private:
  int listener_, port_ = 0;
  std::thread thread_;
};

std::string failure(const HttpFetch& fetch, ErrorKind kind = ErrorKind::runtime) {
  try {
    http_fetch(fetch);
  } catch (const Error& e) {
    CHECK(e.kind() == kind);
    return e.what();
  }
  return "";
}
bool has(const std::string& text, const std::string& part) {
  CAPTURE(text);
  CHECK(text.find(part) != std::string::npos);
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("URLs") {
  const HttpUrl plain = parse_http_url("http://example.org");
  CHECK(plain.host == "example.org");
  CHECK(plain.port == 80);
  CHECK(plain.path == "");
  CHECK(plain.authority() == "example.org:80");
  const HttpUrl full = parse_http_url("HTTP://[fe80::1%25eth0]:8080/a/b?c=d#e");
  CHECK(full.host == "fe80::1%25eth0");
  CHECK(full.port == 8080);
  CHECK(full.path == "/a/b?c=d");
  CHECK(parse_http_url("http://[::1]:1").authority() == "[::1]:1");
  CHECK(parse_http_url("http://h?q").path == "/?q");
  for (const char* bad :
       {"", "h:80", "ftp://h", "http://", "http:///x", "http://h:", "http://h:0", "http://h:65536", "http://h:8x",
        "http://a b", "http://h/\n", "http://::1:80", "http://[::1", "http://[::1]x", "http://u:p@h", "http:/h"}) {
    CAPTURE(bad);
    CHECK(has(failure({.url = bad}, ErrorKind::usage), "expected http://HOST[:PORT][/PATH]"));
  }
  CHECK(has(failure({.url = "https://h"}, ErrorKind::usage), "TLS"));
  CHECK(has(failure({.url = "http://h", .headers = {{"a", "b\r\nc: d"}}}, ErrorKind::usage), "line break"));
}

TEST_CASE("our server's replies") {
  TestServer s;
  const std::string base = "http://127.0.0.1:" + std::to_string(s.start());
  const HttpFetched got = http_fetch({.url = base + "/io?q=1"});
  CHECK(got.status == 200);
  CHECK(got.body == "GET /io?q=1 ");
  REQUIRE(got.header("content-type") != nullptr);
  CHECK(*got.header("content-type") == "text/plain");
  CHECK(got.header("none") == nullptr);
  CHECK(http_fetch({.method = "POST", .url = base + "/worker", .body = "all of it"}).body == "POST /worker? all of it");
  CHECK(http_fetch({.method = "POST", .url = base + "/worker"}).body == "POST /worker? ");
  CHECK(http_fetch({.method = "HEAD", .url = base + "/length?5"}).body == "");
  CHECK(http_fetch({.url = base + "/length?1000003"}).body == std::string(1000003, 'x'));
  CHECK(http_fetch({.url = base}).status == 404);
  CHECK(http_fetch({.method = "DELETE", .url = base + "/io"}).status == 405);
  CHECK(http_fetch({.url = "http://localhost" + base.substr(16) + "/io"}).status == 200);
  CHECK(has(failure({.url = base + "/length?101", .max_body_bytes = 100}), "at most 100 bytes"));
  CHECK(has(failure({.url = base + "/throws_late"}), "GET /throws_late at 127.0.0.1:"));  // torn or reset
  CHECK(http_fetch({.method = "POST", .url = base + "/io", .body = std::string(40 << 20, 'x')}).status == 413);
}

TEST_CASE("replies of other servers") {
  CHECK(http_fetch({.url = OneReply("HTTP/1.0 200 OK\r\n\r\nuntil the end").url()}).body == "until the end");
  const OneReply chunked("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
                         OneReply::Then::silence);
  CHECK(http_fetch({.url = chunked.url()}).body == "abc");
  const OneReply moved("HTTP/1.1 301 Moved\r\nLocation: http://other/x\r\nContent-Length: 0\r\n\r\n");
  CHECK(has(failure({.url = moved.url()}), "redirects (301) to http://other/x"));
  const OneReply torn("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort");
  CHECK(has(failure({.url = torn.url()}), "before the reply's end"));
  const OneReply strange("+OK POP3\r\n");
  const std::string said = failure({.url = strange.url()});
  CHECK(has(said, "GET /x at 127.0.0.1:"));
  CHECK(has(said, "found \"+OK POP3\""));
  const OneReply silent("HTTP/1.1 200 OK\r\n", OneReply::Then::silence);
  CHECK(has(failure({.url = silent.url(), .timeout_s = 0.1}), "no whole reply within 0.1 s"));
}

TEST_CASE("nobody there") {
  int port = 0;
  {
    TestServer s;
    port = s.start();
  }
  const std::string said = failure({.url = "http://127.0.0.1:" + std::to_string(port)});
  CHECK(has(said, "cannot connect to 127.0.0.1:" + std::to_string(port) + ": Connection refused"));
  CHECK(has(failure({.url = "http://no-such-host.invalid:8000/"}), "no-such-host.invalid:8000: cannot find the host"));
}
