// From what a server was told to what it is made of, and what that takes of memory: needs no weights and no machine.
#pragma once
#include "libcore/serve/model_runner.h"
#include "libcore/serve/scheduler.h"
#include "libcore/spec/serve_spec.h"

namespace rw {

// n_pages is left at 0: what is left of the memory decides. Error{usage} when --kv-dtype does not go with the
// precision.
struct RunnerAsked {
  const ServeSpec& spec;
  const ModelSpec& model;
  int64_t max_len = 0;  // longest sequence
  int threads = 1;
};
RunnerSpec runner_spec(const RunnerAsked& asked);
SchedulerSpec scheduler_spec(const ServeSpec& spec, int64_t n_pages);

// Bytes of a runner without pages, counted by making one on a counting arena, and of a page. What the process takes
// beside it is not in runtime.
struct RunnerSizes {
  int64_t weights = 0, runtime = 0, page_bytes = 0;
  // More pages than this are of no use: those of a step's sequences, and of as many again that the prefix cache keeps.
  int64_t most_pages = 0;
};
RunnerSizes runner_sizes(const RunnerSpec& runner, int rank, int ranks);

}  // namespace rw
