// Everything that `dplan serve` can be told: one field list makes its flags, config keys and --help. What the server
// itself is told is spelled as its own flags are.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "libcore/base/fields.h"
#include "libcore/plan/serve/serve_stats.h"
#include "libcore/spec/serve_spec.h"

namespace rw {

enum class ServeMode : uint8_t { colocated, split, automatic };

struct ServePlanSpec {
  std::string cluster, workload, tp = "auto", replicas = "auto", mode = "auto", itl_of = "worst";
  int64_t nodes = 0, seed = 1, top = 8;
  double attainment = 0.99, step_overhead_ms = 0;
  ServeSpec serve;  // model, objective, scheduler and memory flags

  std::vector<int64_t> tps() const;  // empty: auto; Error{usage}
  int64_t fixed_replicas() const;    // 0: auto; Error{usage}
  ServeMode serve_mode() const;
  ServeObjective objective() const;
};

FieldList fields(ServePlanSpec& spec);
// What no single field can say alone; Error{usage} names the flags.
void check_serve_plan_spec(const ServePlanSpec& spec);

}  // namespace rw
