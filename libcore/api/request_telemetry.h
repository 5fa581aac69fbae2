// What is measured of one request's sequences, from their events: histograms of latencies, SLO attainment, spans.
#pragma once
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "libcore/api/request_ids.h"
#include "libcore/api/server_metrics.h"
#include "libcore/serve/request.h"
#include "libcore/telemetry/span_log.h"

namespace rw {

struct RequestRecord {
  std::string id;
  TraceContext trace;
  int64_t n = 1;                                          // choices for each prompt
  std::vector<int64_t> prompt_tokens;                     // by prompt
  double received_s = 0, handled_s = 0, tokenized_s = 0;  // now_s()
};

class RequestTelemetry {
 public:
  // spans: null where none are kept. Both outlive this.
  RequestTelemetry(RequestRecord record, ServerMetrics& metrics, SpanLog* spans);
  void event(const SequenceEvent& event);

 private:
  struct Choice {
    double last_token_s = 0, worst_gap_s = 0;
    int64_t n_tokens = 0;
    double preempted_s = 0;
    std::vector<Span> waits;  // after preemptions
    bool finished = false;
  };
  void tokens(Choice& choice, const SequenceEvent& event);
  void preempted(Choice& choice, const SequenceTimes& times) const;
  void finished(Choice& choice, const SequenceEvent& event);
  void keep_spans(const Choice& choice, const SequenceEvent& event);

  std::mutex mutex_;
  const RequestRecord record_;
  ServerMetrics& metrics_;
  SpanLog* spans_;
  std::vector<Choice> choices_;
};

}  // namespace rw
