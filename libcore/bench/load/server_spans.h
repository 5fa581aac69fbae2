// The server's own account of each request (spans.jsonl of dserve --out DIR --log-spans), joined with the client's by
// request id: where between the two ends the time went.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "libcore/bench/load/latency.h"
#include "libcore/bench/load/load_types.h"

namespace rw {

struct SpanJoin {
  int64_t joined = 0, missing = 0;  // completed requests that have a line, and that have none
  // receive, tokenize, queue, prefill, decode, preempted, stream, in this order, those there are; and network: E2E from
  // the actual send less the server's whole time.
  std::vector<std::pair<std::string, LatencySummary>> spans;
};
// `lines` came from `where`: a line a sequence, times since the request was received. Of a request of several sequences
// the first counts. Lines of other requests, and a last one that is cut off, are passed over.
SpanJoin join_server_spans(const LoadRun& run, std::string_view lines, const std::string& where);

}  // namespace rw
