#include "libcore/net/http_server.h"

#include <sys/resource.h>

#include <algorithm>
#include <utility>

#include "libcore/base/check.h"
#include "libcore/base/log.h"
#include "libcore/net/http_app.h"
#include "libcore/net/http_io.h"
#include "libcore/net/http_reply.h"
#include "libcore/net/http_workers.h"

namespace rw {
namespace {

// Raises the soft limit of open files to the hard one; returns it.
int64_t raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  if (limit.rlim_cur < limit.rlim_max) {
    const rlim_t soft = std::exchange(limit.rlim_cur, limit.rlim_max);
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = soft;
  }
  return limit.rlim_cur == RLIM_INFINITY ? INT64_MAX : static_cast<int64_t>(limit.rlim_cur);
}

}  // namespace

const std::string* HttpRequest::header(std::string_view lower_case_name) const {
  for (const auto& [name, value] : headers)
    if (name == lower_case_name) return &value;
  return nullptr;
}

void HttpReply::send(int status, std::string_view body, std::string_view content_type,
                     const HttpHeaders& headers) const {
  impl_->state->send(status, body, content_type, headers);
}
void HttpReply::begin(int status, std::string_view content_type, const HttpHeaders& headers) const {
  impl_->state->begin(status, content_type, headers);
}
void HttpReply::write(std::string_view chunk) const { impl_->state->write(chunk); }
void HttpReply::finish() const { impl_->state->finish(); }
bool HttpReply::gone() const { return impl_->state->gone(); }
void HttpReply::on_gone(std::function<void()> tell) const { impl_->state->on_gone(std::move(tell)); }

struct HttpServer::Impl {
  explicit Impl(std::shared_ptr<HttpApp> the_app) : app(std::move(the_app)), io(app) {}
  const std::shared_ptr<HttpApp> app;
  HttpWorkers workers;
  HttpIo io;
  bool started = false;
};

HttpServer::HttpServer(const HttpServerSpec& spec) {
  const auto app = std::make_shared<HttpApp>();
  app->spec = spec;
  app->refuse = default_refusal;
  impl_ = std::make_unique<Impl>(app);
  app->submit = [workers = &impl_->workers](HttpJob job) { return workers->submit(std::move(job)); };
}
HttpServer::~HttpServer() { stop(0); }

void HttpServer::route(std::string_view method, std::string_view path, HttpWhere where, HttpHandler handler) {
  CHECK(!impl_->started, "routes are added before start");
  impl_->app->routes.add(method, path, {where, std::move(handler)});
}
void HttpServer::refuse_with(std::function<std::string(int, const std::string&)> body) {
  CHECK(!impl_->started, "refuse_with is called before start");
  impl_->app->refuse = std::move(body);
}
void HttpServer::before(std::function<bool(const HttpRequest&, const HttpReply&)> gate) {
  CHECK(!impl_->started, "the gate is set before start");
  impl_->app->gate = std::move(gate);
}

int HttpServer::start() {
  CHECK(!impl_->started, "a server is started twice");
  HttpServerSpec& spec = impl_->app->spec;
  // The engine's own files and sockets want some descriptors too.
  constexpr int64_t kOtherFiles = 256;
  const int64_t files = raise_file_limit();
  if (spec.max_connections > files - kOtherFiles) {
    const int64_t possible = std::max(files / 2, files - kOtherFiles);
    log_warning("{} connections are wanted, but only {} files may be open (ulimit -n): taking at most {} connections",
                spec.max_connections, files, possible);
    spec.max_connections = possible;
  }
  impl_->started = true;
  const int port = impl_->io.listen();
  impl_->workers.start(std::max(1, spec.workers), spec.max_queue);
  return port;
}

void HttpServer::stop_listening() { impl_->io.stop_listening(); }

void HttpServer::stop(double patience_s) {
  impl_->app->draining = true;
  impl_->io.stop_listening();
  impl_->io.drain(patience_s);
  impl_->io.stop();
  impl_->workers.stop();
}

HttpServer::Counts HttpServer::counts() const {
  const HttpTally& tally = impl_->app->tally;
  return {.connections = tally.connections,
          .accepted = tally.accepted,
          .refused = tally.refused,
          .requests = tally.requests,
          .bad_requests = tally.bad_requests,
          .timeouts = tally.timeouts,
          .cut_off = tally.cut_off,
          .worker_queue_s = impl_->workers.oldest_wait_s()};
}

}  // namespace rw
