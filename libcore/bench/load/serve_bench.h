// `dbench serve`: asks the server what it is, warms it up, sends the load (or searches for the rate it can take),
// checks that nothing was left behind, and writes the record.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "libcore/base/error.h"
#include "libcore/bench/load/load_spec.h"
#include "libcore/bench/record/bench_record.h"

namespace rw {

struct ServeBenchResult {
  BenchRecord record;
  std::string text;  // for people
  std::string flat;  // JSON text: the flat object of vllm bench serve, of the last run
  // After all is told: what makes the command fail. runtime: no request ended well. verdict: a leak, or with --strict a
  // void run or a text that differs.
  std::optional<Error> failure;
  std::vector<std::string> notes, warnings;
};

// `progress`: what is being done, how far (0..1), detail; called from this thread.
using ServeBenchProgress = std::function<void(const std::string& phase, double fraction, const std::string& detail)>;

// Error{usage} for what contradicts itself or the server's bounds; Error{runtime} when the server cannot be reached or
// refuses the warm-up.
// `stop`, asked now and then: true ends the measuring; what was measured until then is told, and the failure is
// runtime.
ServeBenchResult run_serve_bench(const ServeLoadSpec& spec, const ServeBenchProgress& progress,
                                 const std::function<bool()>& stop = {});

}  // namespace rw
