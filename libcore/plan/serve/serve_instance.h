// One server of so many devices: whether the model fits, what room its cache has, and what its steps cost.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "libcore/plan/serve/serve_price.h"
#include "libcore/serve/memory_budget.h"
#include "libcore/serve/scheduler.h"
#include "libcore/spec/serve_spec.h"

namespace rw {

// Of each of the server's devices; by the code that a server deals out its memory with.
struct ServeMemory {
  int64_t device_bytes = 0;  // beside the device's reserve
  int64_t weights = 0, runtime = 0, kv = 0;
  int64_t page_bytes = 0, page_tokens = 0, n_pages = 0;
  double full_sequences = 0;  // of --max-model-len that fit side by side
  int64_t max_context = 0;    // longest sequence that would fit alone, at most the model's
  int64_t least = 0;          // of --memory, for one sequence of --max-model-len; a whole number of MiB
  std::string fault;          // why not one sequence of --max-model-len fits; "" when it does
  double kv_bytes_per_token() const { return static_cast<double>(page_bytes) / static_cast<double>(page_tokens); }
};

struct InstanceQuery {
  const ModelSpec& model;
  const ServeSpec& spec;
  const ClusterSpec& cluster;  // of one node type
  int64_t tp = 1;
  double overhead_s = 0;
};

struct ServeInstance {
  int64_t tp = 1, max_len = 0;
  ServeMemory memory;
  SchedulerSpec scheduler;         // n_pages 0 when it does not fit
  std::optional<StepPrice> price;  // none when it does not fit
  // guess, but on devices whose calibration was measured: no decode step of another was ever checked.
  Provenance provenance = Provenance::roofline;
};
// Error{usage} when the model cannot be cut into tp parts, with the reason.
ServeInstance make_instance(const InstanceQuery& query);
// Bytes of a cached token that a prefill server sends: all of the model's, each once.
double sent_bytes_per_token(const ModelSpec& model, const ServeInstance& instance);

}  // namespace rw
