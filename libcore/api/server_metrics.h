// What Prometheus gets to see. Latencies and counts are taken from requests as they go; what the engine counts itself
// is read from it when the metrics are read.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "libcore/api/timings.h"
#include "libcore/net/http_server.h"
#include "libcore/serve/engine.h"
#include "libcore/spec/serve_spec.h"

namespace rw {

// What the latencies of one answered request come to, told as they become known. A sequence is one choice.
struct AdmittedRequest {
  int64_t prompts, n, max_tokens;
};
struct FinishedSequence {
  FinishReason reason;
  Timings timings;
  int64_t prompt_tokens, completion_tokens;
  double worst_gap_s;
};
struct MetricsModel {
  std::string name, identity;
  int64_t max_model_len, pages;
  std::string device;
};

class ServerMetrics {
 public:
  explicit ServerMetrics(const ServeSpec& spec);
  ~ServerMetrics();
  // The model that all series but those of HTTP are labelled with. Once, before the calls below that are of requests.
  void set_model(const MetricsModel& model);

  void http(const std::string& route, int status);
  void rejected(const std::string& reason);
  void admitted(const AdmittedRequest& request);
  void first_token(double ttft_s);
  void token_gaps(double gap_s, int64_t n);  // n tokens that came gap_s apart
  void finished(const FinishedSequence& sequence);
  // The longest gap since the last call; below 0: no token came after another.
  double take_worst_gap_s();

  struct Reading {
    const EngineStats* engine = nullptr;  // null: still loading
    HttpServer::Counts http = {};
    int64_t live = 0;  // requests whose reply is not over
    bool healthy = false;
    double now = 0;
  };
  std::string text(const Reading& reading);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Pages that hold something which is in use, not merely kept for later, as a share of all.
double kv_usage(const EngineStats& stats);

}  // namespace rw
