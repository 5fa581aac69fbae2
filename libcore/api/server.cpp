#include "libcore/api/server.h"

#include "libcore/api/api_state.h"
#include "libcore/api/housekeeping.h"
#include "libcore/api/routes.h"
#include "libcore/net/http_server.h"

namespace rw {
namespace {

HttpServerSpec http_spec(const ServeSpec& spec) {
  HttpServerSpec http;
  http.host = spec.host;
  http.port = static_cast<int>(spec.port);
  http.max_connections = spec.max_connections;
  http.max_body_bytes = spec.max_body;
  return http;
}

}  // namespace

struct ApiServer::Impl {
  explicit Impl(const ServeSpec& spec) : state(spec), http(http_spec(spec)), housekeeping(state) {
    state.http_counts = [this] { return http.counts(); };
    add_routes(http, state);
  }

  // In this order: the server's threads end before what its handlers look at goes.
  ApiState state;
  HttpServer http;
  Housekeeping housekeeping;
};

ApiServer::ApiServer(const ServeSpec& spec) : impl_(std::make_unique<Impl>(spec)) {}
ApiServer::~ApiServer() { stop(0); }

int ApiServer::start() {
  const int port = impl_->http.start();
  impl_->housekeeping.start();
  return port;
}

void ApiServer::serve(ServedModel model, Engine& engine) {
  RequestLimits limits{.model = model.name,
                       .vocab_size = model.spec.vocab_size,
                       .max_model_len = model.max_model_len,
                       .max_choices = impl_->state.spec.max_choices,
                       .max_logprobs = impl_->state.spec.max_logprobs,
                       .chat_template = impl_->state.spec.request_chat_template};
  impl_->state.set_loaded({.model = std::move(model), .engine = &engine, .limits = std::move(limits)});
}

void ApiServer::drain() { impl_->state.draining = true; }
int64_t ApiServer::live_requests() const { return impl_->state.live.count(); }
void ApiServer::stopping() { impl_->state.stopping = true; }

void ApiServer::stop(double patience_s) {
  impl_->state.draining = true;
  impl_->housekeeping.stop();
  impl_->http.stop(patience_s);
}

}  // namespace rw
