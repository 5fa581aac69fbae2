// What a load generator sends and what it saw. The runner fills outcomes and knows no statistics; the arithmetic
// (latency.h) reads them and knows no sockets.
//
// Times are seconds since the run's start by one monotonic clock. A request is due when the schedule says so; it is
// sent when the client got to it: the difference is the client's own lateness, and what users would have waited.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "libcore/base/json.h"

namespace rw {

struct LoadRequest {
  int64_t index = 0;
  double due_s = 0;  // open loop; closed loop: 0, it goes when a place is free
  std::string path = "/v1/completions";
  std::string body;  // JSON, complete
  bool stream = true;
  int64_t after = -1;  // multi-turn: index of the request whose end this one waits for; then due_s counts from that end
  int64_t disconnect_after_tokens = -1;      // fault script: the client hangs up when it has so many
  int64_t input_tokens = 0, max_tokens = 0;  // as planned
  bool input_exact = false;                  // token ids are sent: input_tokens are what the server gets
  std::string golden;                        // expected text; "": not checked
};

// A piece of a stream with text: when it came and how many tokens it held.
struct LoadChunk {
  double at_s = 0;
  int64_t tokens = 1;
};

// How a request ended. Everything but `ok` and `disconnected` (asked for) counts as failed.
enum class LoadEnd : uint8_t {
  ok,
  disconnected,
  refused_429,
  refused_503,
  http_error,
  connect_error,
  closed_mid_stream,
  malformed_stream,
  error_event,
  timed_out,
  wrong_text,
  no_output,  // an orderly end without a token, a text or a reason
  n_ends
};
const char* load_end_name(LoadEnd end);

struct LoadOutcome {
  int64_t index = 0;
  double due_s = 0, sent_s = 0;  // sent: when its first byte went out
  double first_byte_s = 0;       // of the reply's head; 0: none came
  double end_s = 0;              // last byte, or when it was given up
  std::vector<LoadChunk> chunks;
  int64_t prompt_tokens = 0, output_tokens = 0;  // by the server's usage; where it gives none, the chunks'
  bool prompt_known = false;                     // by the server, or because token ids were sent
  bool usage_known = false;
  bool usage_doubted = false;  // usage said more than was asked for, or other than the token ids: those count
  bool tokens_exact = false;   // each chunk's token count is known (continuous usage, token ids), not assumed
  LoadEnd end = LoadEnd::ok;
  int status = 0;  // HTTP; 0: none
  int64_t retries = 0;
  std::string error, finish_reason, request_id, text;
  double queue_s = -1, prefill_s = -1, decode_s = -1, server_ttft_s = -1,
         server_total_s = -1;  // by the server; -1: unknown
  int64_t cached_tokens = -1;
};

struct LoadRun {
  std::vector<LoadOutcome> outcomes;  // by index
  double wall_s = 0;
  double client_cpu_s = 0;  // of this process
  int64_t connections = 0;  // opened
};

}  // namespace rw
