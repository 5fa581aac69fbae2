// What happened to each sequence and when: a JSON line a sequence, and a Chrome trace.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "libcore/base/json.h"
#include "libcore/telemetry/chrome_trace.h"
#include "libcore/telemetry/json_lines.h"

namespace rw {

// Of a W3C traceparent header, "00-<trace id>-<parent id>-<flags>".
struct TraceParent {
  std::string trace_id;   // 32 hex digits, lower case
  std::string parent_id;  // 16
  uint8_t flags = 0;      // bit 0: sampled
};
// Nothing when the header is malformed: a bad one is left out, as the specification says, not an error.
std::optional<TraceParent> parse_traceparent(std::string_view header);
std::string traceparent_header(const TraceParent& parent);

struct Span {
  std::string name;  // "queue", "prefill", ...
  double start_s, end_s;
};

struct SequenceSpans {
  std::string request_id, trace_id;                     // trace_id: empty when the client sent none
  int64_t sequence = 0;                                 // within its request
  double receive_s = 0;                                 // by the clock of the spans
  std::vector<Span> spans;                              // in any order; they follow one another or nest
  std::vector<std::pair<std::string, int64_t>> counts;  // "prompt_tokens", "cached_tokens", ...
  std::string finish_reason;
};

// {"request_id", "trace_id", "sequence", "finish_reason", counts..., "spans": [{"name", "start_ms", "end_ms"}]}:
// milliseconds since the request was received, in the order of their starts.
Json spans_json(const SequenceSpans& sequence);

// Any thread may add.
class SpanLog {
 public:
  // Where to: an empty path is no file. Error{runtime} when a file cannot be made.
  SpanLog(const std::filesystem::path& lines, const std::filesystem::path& trace);
  // When the sequence has ended. False, and quiet, when a disk is full.
  bool add(const SequenceSpans& sequence);

 private:
  std::mutex mutex_;
  JsonLines lines_;
  std::unique_ptr<ChromeTrace> trace_;
  std::vector<double> rows_end_s_;  // when the last sequence of each row of the trace ended
};

}  // namespace rw
