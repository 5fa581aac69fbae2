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
  int64_t max_concurrency = 0;  // 0: none. So many at a time; a request that is due waits until there is a place
  bool closed_loop = false;     // due times count for nothing: the next one goes when one ends (max_concurrency)
  double request_timeout_s = 600, connect_timeout_s = 10;  // of a request: from its first sending, retries included
  int64_t max_retries = 0;   // of 429 and 503, after the Retry-After they name (1 s where they name none)
  bool ignore_text = false;  // keep no text (large runs); golden texts are compared all the same
  std::function<void(int64_t finished, int64_t running)> progress = {};
  // Asked now and then; true: running requests are given up (LoadEnd::disconnected), those not sent have no outcome.
  std::function<bool()> stop = {};
};
// Connections for what is due next are opened ahead. Each request carries an x-request-id of its own,
// "dbench-RUN-INDEX". In a closed loop a request is due when its place is free. A target that ends in /v1 and a path
// that begins with it share it. The soft limit of open files is raised to the hard one.
// Error{runtime} when the target cannot be reached at all (the first connection fails: names host, port and why);
// Error{usage} for a URL that is none, Error{input} for an `after` that names no earlier request.
LoadRun run_load(const std::vector<LoadRequest>& schedule, const LoadOptions& options);

}  // namespace rw
