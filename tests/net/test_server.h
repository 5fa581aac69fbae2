// A server with handlers of each kind, for tests.
#pragma once
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "libcore/base/log.h"
#include "libcore/net/http_server.h"
#include "tests/net/http_client.h"

namespace rw::testing {

class TestServer {
 public:
  explicit TestServer(const HttpServerSpec& spec = {}) : server(spec) {
    set_log_level(LogLevel::error);
    const auto echo = [](const HttpRequest& q, const HttpReply& r) {
      r.send(200, q.method + " " + q.path + "?" + q.query + " " + q.body, "text/plain");
    };
    server.route("GET", "/io", HttpWhere::io, echo);
    server.route("POST", "/io", HttpWhere::io, echo);
    server.route("POST", "/worker", HttpWhere::worker, echo);
    server.route("GET", "/worker", HttpWhere::worker, echo);
    server.route("GET", "/below/*", HttpWhere::io, echo);
    server.route("GET", "/below/exact", HttpWhere::io,
                 [](const HttpRequest&, const HttpReply& r) { r.send(200, "exact", "text/plain"); });
    server.route("GET", "/length", HttpWhere::worker, [](const HttpRequest& q, const HttpReply& r) {
      r.send(200, std::string(std::stoul(q.query), 'x'), "text/plain");
    });
    server.route("POST", "/throws", HttpWhere::io,
                 [](const HttpRequest&, const HttpReply&) { throw std::runtime_error("on purpose"); });
    server.route("POST", "/throws_worker", HttpWhere::worker,
                 [](const HttpRequest&, const HttpReply&) { throw std::runtime_error("on purpose"); });
    server.route("GET", "/throws_late", HttpWhere::worker, [](const HttpRequest&, const HttpReply& r) {
      r.begin(200, "text/plain");
      r.write("begun");
      throw std::runtime_error("on purpose");
    });
    server.route("GET", "/nobody", HttpWhere::io, [](const HttpRequest&, const HttpReply&) {});
    server.route("GET", "/keep", HttpWhere::io, [this](const HttpRequest&, const HttpReply& r) {
      const std::lock_guard lock(mutex_);
      kept_.push_back(r);
    });
  }
  int start() { return server.start(); }
  // The n-th reply that GET /keep has kept; waits for it.
  HttpReply kept(size_t n = 0) {
    std::optional<HttpReply> reply;
    const bool there = eventually([&] {
      const std::lock_guard lock(mutex_);
      if (kept_.size() > n) reply = kept_[n];
      return reply.has_value();
    });
    if (!there) throw std::runtime_error("no request came");
    return *reply;
  }
  void drop_kept() {
    const std::lock_guard lock(mutex_);
    kept_.clear();
  }

 private:
  std::mutex mutex_;
  std::vector<HttpReply> kept_;

 public:
  HttpServer server;
};

}  // namespace rw::testing
