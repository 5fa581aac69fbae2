// vLLM's series, by its names and buckets (its documentation's "Metrics" page), for dashboards and autoscalers that
// know those. Off unless --metrics-compat vllm.
#pragma once
#include <array>
#include <string>

#include "libcore/api/server_metrics.h"
#include "libcore/telemetry/prometheus.h"

namespace rw {

class VllmMetrics {
 public:
  VllmMetrics(const MetricsModel& model, int64_t block_size);
  void rejected() { rejected_.add(); }
  void admitted(const AdmittedRequest& request);
  void first_token(double ttft_s) { ttft_.observe(ttft_s); }
  void token_gaps(double gap_s, int64_t n);
  void finished(const FinishedSequence& sequence);
  std::string text(const EngineStats& stats);

 private:
  MetricRegistry registry_;
  EngineStats stats_;  // of the text that is being made
  MetricHistogram &ttft_, &itl_, &tpot_, &e2e_, &queue_, &inference_, &prefill_, &decode_;
  MetricHistogram &prompt_, &generation_, &params_n_, &params_max_tokens_, &max_generation_;
  MetricCounter& rejected_;
  std::array<MetricCounter*, 4> success_;
};

}  // namespace rw
