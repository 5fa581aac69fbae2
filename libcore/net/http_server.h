// An HTTP/1.1 server: connections, parsing, limits and time-outs; whole and streamed replies from any thread. Handlers
// see these types alone.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rw {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;   // "GET"
  std::string path;     // decoded, without the query
  std::string query;    // raw, without '?'
  HttpHeaders headers;  // names in lower case
  std::string body;
  std::string peer;       // "127.0.0.1:4711"
  double received_s = 0;  // now_s() when its first byte was read

  const std::string* header(std::string_view lower_case_name) const;  // null when absent
};

// The reply to one request, from any thread, now or later; copies share it, and may outlive the server. A reply that
// nobody keeps is sent as a 500; a stream that nobody can finish is cut off, so that the peer sees that it is torn.
class HttpReply {
 public:
  // One whole reply.
  void send(int status, std::string_view body, std::string_view content_type = "application/json",
            const HttpHeaders& headers = {}) const;
  // A stream of chunks: begin, write any number, finish. Never blocks: what the peer has not taken yet is kept, up to
  // the server's max_backlog_bytes; a peer that lets more pile up is cut off.
  void begin(int status, std::string_view content_type, const HttpHeaders& headers = {}) const;
  void write(std::string_view chunk) const;
  void finish() const;
  // The peer has gone (or was cut off); further writes are dropped.
  bool gone() const;
  // Called once, on an i/o thread, if the peer goes before the reply is finished; at once, by the calling thread, when
  // it has gone already. Must not block or throw.
  void on_gone(std::function<void()> tell) const;

  struct Impl;
  explicit HttpReply(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<Impl> impl_;
};

using HttpHandler = std::function<void(const HttpRequest&, const HttpReply&)>;

struct HttpServerSpec {
  std::string host = "127.0.0.1";
  int port = 0;  // 0: a free one
  int io_threads = 1, workers = 2;
  int64_t max_connections = 4096;  // beyond them the oldest idle one is closed, or the new one refused with 503
  int64_t max_header_bytes = 64 << 10, max_body_bytes = 32 << 20;  // beyond: 431, 413
  int64_t max_bodies_bytes = 512 << 20;                            // of all requests together; beyond: 503
  int64_t max_queue = 256;                                         // requests that wait for a worker; beyond: 503
  int64_t max_backlog_bytes = 8 << 20;
  double header_timeout_s = 10, body_timeout_s = 60, idle_timeout_s = 75, write_timeout_s = 60;
};

// Where a handler runs: on an i/o thread (short, never blocks: health, metrics), or on a worker.
enum class HttpWhere : uint8_t { io, worker };

class HttpServer {
 public:
  explicit HttpServer(const HttpServerSpec& spec);
  ~HttpServer();
  // Before start. A path ending in "/*" takes all below it. Unknown paths get 404, known ones with another method 405,
  // as made by `refuse`.
  void route(std::string_view method, std::string_view path, HttpWhere where, HttpHandler handler);
  // Makes the body of the server's own errors (400, 404, 405, 408, 413, 417, 431, 500, 501, 503).
  void refuse_with(std::function<std::string(int status, const std::string& message)> body);
  // Runs before everything else, on an i/o thread, as soon as a request's headers are there (its body is still empty);
  // false: it has replied (API keys).
  void before(std::function<bool(const HttpRequest&, const HttpReply&)> gate);
  // Listens; Error{runtime} when the address is taken or unknown. Returns the port.
  int start();
  // Closes the listening socket; replies under way go on.
  void stop_listening();
  // Ends everything, waiting up to `patience_s` for replies under way; those left are cut off (gone() is true then).
  // Also waits for worker handlers that run. Not to be called by a handler.
  void stop(double patience_s);
  struct Counts {
    int64_t connections = 0, accepted = 0, refused = 0, requests = 0, bad_requests = 0, timeouts = 0, cut_off = 0;
    double worker_queue_s = 0;  // age of the oldest request that waits for a worker
  };
  Counts counts() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rw
