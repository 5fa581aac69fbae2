// What the handlers of all routes share.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "libcore/api/generation_request.h"
#include "libcore/api/health.h"
#include "libcore/api/live_requests.h"
#include "libcore/api/served_model.h"
#include "libcore/api/server_metrics.h"
#include "libcore/api/unknown_fields.h"
#include "libcore/serve/engine.h"
#include "libcore/spec/serve_spec.h"
#include "libcore/telemetry/memory_ring.h"
#include "libcore/telemetry/span_log.h"

namespace rw {

struct LoadedModel {
  ServedModel model;
  Engine* engine;  // not null
  RequestLimits limits;
};

class ApiState {
 public:
  explicit ApiState(const ServeSpec& spec);

  const ServeSpec spec;
  LiveRequests live;
  UnknownFields unknown;
  MemoryRing memory_ring;
  std::unique_ptr<SpanLog> spans;  // null: neither --log-spans nor --trace
  ServerMetrics metrics;
  std::atomic<bool> draining{false}, stopping{false};
  std::function<HttpServer::Counts()> http_counts;  // set before the server runs

  // Once; from here on requests are taken.
  void set_loaded(LoadedModel loaded);
  const LoadedModel* loaded() const { return ready_.load(std::memory_order_acquire); }  // null: not yet
  // ApiError (503) before the model is there; require_serving also while the server is shutting down or has failed.
  const LoadedModel& require_loaded() const;
  const LoadedModel& require_serving() const;
  Health health(double now) const;
  std::string metrics_text(double now);

 private:
  std::unique_ptr<const LoadedModel> loaded_;
  std::atomic<const LoadedModel*> ready_{nullptr};
};

}  // namespace rw
