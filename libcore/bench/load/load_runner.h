// Sends a schedule of requests and records what came back. One thread; thousands of streams.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "libcore/bench/load/load_types.h"

namespace rw {

struct LoadTarget {
  std::string url;      // "http://127.0.0.1:8000"; a path in it is a prefix
  std::string api_key;  // "" none
};
struct LoadOptions {
  LoadTarget target;
  int64_t max_concurrency = 0;  // 0: none (open loop). Closed loop: so many at a time, each next one when one ends
  bool closed_loop = false;
  double request_timeout_s = 600, connect_timeout_s = 10;
  int64_t max_retries = 0;   // of 429 and 503, after the Retry-After they name
  bool ignore_text = false;  // keep no text (large runs)
  std::function<void(int64_t finished, int64_t running)> progress = {};
  std::function<bool()> stop = {};  // asked now and then; true: running requests are given up, no further ones are sent
};
// Error{runtime} when the target cannot be reached at all (the first connection fails: names host, port and why);
// Error{usage} for a URL that is none.
LoadRun run_load(const std::vector<LoadRequest>& schedule, const LoadOptions& options);

}  // namespace rw
