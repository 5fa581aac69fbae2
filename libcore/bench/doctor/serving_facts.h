// Facts of servers for serving_rules(). Pure: what was seen of them is an argument.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "libcore/bench/doctor/finding.h"
#include "libcore/bench/doctor/serve_records.h"
#include "libcore/telemetry/prometheus_text.h"

namespace rw {

// One reading of a server's /metrics.
struct ServerLook {
  double at_s = 0;  // now_s()
  std::vector<MetricSample> samples;
};

// What was seen of one server.
struct ServerWatch {
  std::string url;
  std::string error;              // it did not answer at all, and why; "" when it did
  std::vector<ServerLook> looks;  // in order; two or more when it answered
  int health_status = 0;
  std::string health_state, health_message;  // of /health; "" where its body says nothing
  std::vector<double> ping_s;                // seconds that /health took, each time
  std::string memory;                        // /debug/memory, JSON text; "" without
  double max_model_len = 0;                  // of /v1/models; NaN when it does not say
};

// Of all servers together (they are replicas of one service): counters and histograms are summed, of what happened
// between the first look and the last, or, where too little happened, since their starts (Fact::where says which). A
// share of fewer than 10 is no fact.
Facts server_facts(const std::vector<ServerWatch>& servers);

// Adds those of a server's records that are not there yet.
void add_record_facts(const ServeRecords& records, Facts& facts);

}  // namespace rw
