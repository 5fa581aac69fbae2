// What all connections of a server share: its limits, routes and counters; no socket and no thread.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "libcore/net/http_server.h"

namespace rw {

struct HttpRoute {
  HttpWhere where;
  HttpHandler handler;
};

// The handlers by path and method.
class HttpRoutes {
 public:
  void add(std::string_view method, std::string_view path, HttpRoute route);
  struct Found {
    const HttpRoute* route = nullptr;  // null: nobody takes this method
    std::string allow;                 // the path's methods, "GET, HEAD, OPTIONS"; empty: nobody knows the path
  };
  // HEAD is answered by GET's handler. An exact path comes before "/*", a longer one before a shorter.
  Found find(std::string_view method, const std::string& path) const;

 private:
  using Methods = std::map<std::string, HttpRoute, std::less<>>;
  std::map<std::string, Methods, std::less<>> exact_, below_;  // below_: keys end in '/'
};

struct HttpTally {
  std::atomic<int64_t> connections = 0, accepted = 0, refused = 0, requests = 0, bad_requests = 0, timeouts = 0,
                       cut_off = 0;
  std::atomic<int64_t> body_bytes = 0;     // held now, in all connections
  std::atomic<int64_t> open_requests = 0;  // whose reply has not been sent in full
};

// A request on its way to a worker.
struct HttpJob {
  const HttpRoute* route;
  std::shared_ptr<const HttpRequest> request;
  std::shared_ptr<HttpReply::Impl> reply;
};

struct HttpApp {
  HttpServerSpec spec;
  HttpRoutes routes;
  std::function<std::string(int, const std::string&)> refuse;      // see HttpServer::refuse_with
  std::function<bool(const HttpRequest&, const HttpReply&)> gate;  // may be empty
  std::function<bool(HttpJob)> submit;                             // false: the workers' queue is full
  HttpTally tally;
  std::atomic<bool> draining = false;  // replies close their connections
};

// OpenAI's shape of an error.
std::string default_refusal(int status, const std::string& message);
// Calls a handler; what it throws becomes a 500, or cuts off the stream that it had begun.
void run_handler(const HttpRoute& route, const HttpRequest& request, const std::shared_ptr<HttpReply::Impl>& reply);

// "HTTP/1.1 200 OK" and the headers, up to and with the empty line.
struct HttpHead {
  int status;
  std::string_view content_type;  // empty: none
  int64_t content_length;         // -1: unknown
  bool chunked, close, keep_alive_said;
  const HttpHeaders* headers = nullptr;
};
void append_head(std::string& out, const HttpHead& head);

}  // namespace rw
