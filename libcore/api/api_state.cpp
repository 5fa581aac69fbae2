#include "libcore/api/api_state.h"

#include <filesystem>

#include "libcore/api/api_error.h"

namespace rw {
namespace {

constexpr double kLoadingRetryS = 2, kDrainingRetryS = 5;

ApiError unavailable(const std::string& message, double retry_after_s) {
  return ApiError({.status = 503, .message = message, .type = "unavailable_error", .retry_after_s = retry_after_s});
}

}  // namespace

ApiState::ApiState(const ServeSpec& spec_) : spec(spec_), metrics(spec_) {
  const std::filesystem::path out = spec.out;
  if (spec.log_spans || spec.trace)
    spans = std::make_unique<SpanLog>(spec.log_spans ? out / "spans.jsonl" : std::filesystem::path(),
                                      spec.trace ? out / "trace.json" : std::filesystem::path());
}

void ApiState::set_loaded(LoadedModel loaded) {
  metrics.set_model({.name = loaded.model.name,
                     .identity = loaded.model.identity,
                     .max_model_len = loaded.model.max_model_len,
                     .pages = loaded.engine->stats().pages,
                     .device = loaded.model.device});
  loaded_ = std::make_unique<const LoadedModel>(std::move(loaded));
  ready_.store(loaded_.get(), std::memory_order_release);
}

const LoadedModel& ApiState::require_loaded() const {
  if (const LoadedModel* l = loaded()) return *l;
  throw unavailable("the model is being loaded; try again", kLoadingRetryS);
}

const LoadedModel& ApiState::require_serving() const {
  if (draining.load()) throw unavailable("the server is shutting down; try another or later", kDrainingRetryS);
  const LoadedModel& l = require_loaded();
  if (l.engine->state() == EngineState::failed) throw unavailable("the engine failed: " + l.engine->failure(), 0);
  return l;
}

Health ApiState::health(double now) const {
  HealthInputs in{.draining = draining.load(), .now = now, .heartbeat_timeout_s = spec.heartbeat_timeout};
  if (const LoadedModel* l = loaded()) {
    in.loaded = true;
    in.state = l->engine->state();
    if (in.state == EngineState::failed) in.failure = l->engine->failure();
    in.stats = l->engine->stats();
  }
  return health_of(in);
}

std::string ApiState::metrics_text(double now) {
  ServerMetrics::Reading reading{.live = live.count(), .healthy = health(now).status == 200, .now = now};
  if (http_counts) reading.http = http_counts();
  EngineStats stats;
  if (const LoadedModel* l = loaded()) {
    stats = l->engine->stats();
    reading.engine = &stats;
  }
  return metrics.text(reading);
}

}  // namespace rw
