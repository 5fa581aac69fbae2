// A connection's bytes: whatever comes, whole or in pieces, the session ends or goes on; what it answers is HTTP; the
// next connection's request works and no request, reply or byte of a body is left counted. The session runs without its
// socket, so that an input costs microseconds; one input in 256 also goes to a real server over loopback.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "libcore/base/log.h"
#include "libcore/net/http_session.h"

using namespace rw;

namespace {

constexpr std::string_view kGood = "POST /io HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\ngood";

HttpServerSpec limits() { return {.max_header_bytes = 2000, .max_body_bytes = 3000, .max_backlog_bytes = 4000}; }

struct Route {
  const char *method, *path;
  HttpWhere where;
  HttpHandler handler;
};

std::vector<Route> routes(std::vector<HttpReply>& kept) {
  const HttpHandler echo = [](const HttpRequest& q, const HttpReply& r) {
    r.send(200, q.path + q.query + q.body, "text/plain", {{"x-request-id", q.query}});
  };
  const HttpHandler stream = [](const HttpRequest& q, const HttpReply& r) {
    r.begin(200, "text/event-stream");
    for (size_t at = 0; at < q.body.size(); at += 7) r.write(q.body.substr(at, 7));
    r.finish();
  };
  const HttpHandler keep = [&kept](const HttpRequest&, const HttpReply& r) { kept.push_back(r); };
  const HttpHandler nobody = [](const HttpRequest&, const HttpReply&) {};
  return {{"GET", "/io", HttpWhere::io, echo},        {"POST", "/io", HttpWhere::io, echo},
          {"GET", "/below/*", HttpWhere::io, echo},   {"POST", "/stream", HttpWhere::io, stream},
          {"GET", "/stream", HttpWhere::io, stream},  {"GET", "/keep", HttpWhere::io, keep},
          {"POST", "/nobody", HttpWhere::io, nobody}, {"POST", "/worker", HttpWhere::worker, echo}};
}

// Sessions without sockets; the "worker" is this thread, a little later.
class Bench {
 public:
  Bench() : app_(std::make_shared<HttpApp>()) {
    app_->spec = limits();
    app_->refuse = default_refusal;
    app_->gate = [](const HttpRequest& q, const HttpReply& r) {
      if (q.header("x-forbidden") == nullptr) return true;
      r.send(401, "");
      return false;
    };
    app_->submit = [this](HttpJob job) {
      if (jobs_.size() >= 2) return false;
      jobs_.push_back(std::move(job));
      return true;
    };
    for (Route& r : routes(kept_)) app_->routes.add(r.method, r.path, {r.where, std::move(r.handler)});
  }

  // All that a connection answers to `bytes`, given in pieces of `piece`.
  std::string answers(std::string_view bytes, size_t piece) {
    std::string all;
    double now = 0;
    HttpSession session(
        app_, "fuzz", [] {}, now);
    const auto carry = [&] {
      for (size_t turn = 0; turn < 1000; ++turn) {
        const std::string_view out = session.output();
        if (out.empty()) break;
        const size_t n = std::min<size_t>(out.size(), 1 + turn * 97);
        all += out.substr(0, n);
        session.sent(n, now);
      }
    };
    const auto settle = [&] {
      carry();
      while (!jobs_.empty() || !kept_.empty()) {
        for (HttpJob& job : std::exchange(jobs_, {})) run_handler(*job.route, *job.request, job.reply);
        for (const HttpReply& reply : std::exchange(kept_, {}))
          if (all.size() % 2 == 0) reply.send(200, "kept");
        session.advance(now);
        carry();
      }
    };
    for (size_t at = 0; at < bytes.size() && session.reading(); at += piece) {
      session.receive(bytes.substr(at, piece), now += 0.01);
      carry();
      if (at / piece % 3 == 0) settle();
      session.tick(now);
    }
    settle();
    if (bytes.size() % 2 == 0) session.peer_ended();
    settle();
    session.tick(now + 1000);
    settle();
    session.tick(now + 2000);
    settle();
    if (!session.idle() && !session.over() && !session.lingering()) std::abort();
    return all;
  }

  void check_clean() const {
    if (app_->tally.body_bytes != 0 || app_->tally.open_requests != 0 || !jobs_.empty() || !kept_.empty()) std::abort();
  }

 private:
  const std::shared_ptr<HttpApp> app_;
  std::vector<HttpJob> jobs_;
  std::vector<HttpReply> kept_;
};

int connect_to(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) std::abort();
  return fd;
}

// What the server answers until it closes or has said `enough`.
std::string exchange(int port, std::string_view bytes, std::string_view enough) {
  const int fd = connect_to(port);
  (void)!::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (enough.empty()) ::shutdown(fd, SHUT_WR);
  std::string all;
  for (char buffer[4096]; enough.empty() || all.find(enough) == std::string::npos;) {
    pollfd wait{.fd = fd, .events = POLLIN, .revents = 0};
    if (::poll(&wait, 1, 20000) != 1) std::abort();  // neither answered nor closed
    const ssize_t n = ::recv(fd, buffer, sizeof buffer, 0);
    if (n <= 0) break;
    all.append(buffer, static_cast<size_t>(n));
  }
  ::close(fd);
  return all;
}

// The same handlers behind sockets and threads.
class Served {
 public:
  Served() : server_(limits()) {
    for (Route& r : routes(kept_))
      if (std::string_view(r.path) != "/keep") server_.route(r.method, r.path, r.where, std::move(r.handler));
    port_ = server_.start();
  }
  int port() const { return port_; }

 private:
  std::vector<HttpReply> kept_;
  HttpServer server_;
  int port_;
};

void check_good(const std::string& answer) {
  if (!answer.starts_with("HTTP/1.1 200 OK\r\n") || !answer.ends_with("/iogood")) std::abort();
}

}  // namespace

extern "C" void fuzz_one(const uint8_t* data, size_t size) {
  static Bench bench;
  static Served served;
  static uint64_t runs = 0;
  set_log_level(LogLevel::error);
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (const size_t piece : {size + 1, size_t{1} + size % 23}) {
    const std::string answer = bench.answers(bytes, piece);
    if (!answer.empty() && !answer.starts_with("HTTP/1.1 ")) std::abort();
    bench.check_clean();
  }
  check_good(bench.answers(kGood, kGood.size()));
  bench.check_clean();
  if (runs++ % 256 != 0) return;
  exchange(served.port(), bytes, "");
  check_good(exchange(served.port(), kGood, "/iogood"));
}
