// The series that requests feed, under our own names.
#pragma once
#include <array>
#include <string>

#include "libcore/api/server_metrics.h"
#include "libcore/telemetry/prometheus.h"

namespace rw {

class RequestSeries {
 public:
  // A limit of 0 s is no SLO. The registry outlives this.
  RequestSeries(MetricRegistry& registry, double slo_ttft_s, double slo_itl_s);
  void rejected(const std::string& reason);
  void admitted(const AdmittedRequest& request);
  void first_token(double ttft_s);
  void token_gaps(double gap_s, int64_t n);
  void finished(const FinishedSequence& sequence);

 private:
  struct Slo {
    double limit_s;
    MetricCounter *kept = nullptr, *missed = nullptr;
    void count(double value_s);
  };
  Slo slo(const char* name, double limit_s);

  MetricRegistry& registry_;
  MetricHistogram &ttft_, &itl_, &tpot_, &e2e_, &queue_, &prefill_, &decode_, &preempted_, &prompt_, &generation_;
  MetricCounter& admitted_;
  std::array<MetricCounter*, 4> finished_;  // stop, length, abort, error
  Slo slo_ttft_, slo_itl_;
};

}  // namespace rw
