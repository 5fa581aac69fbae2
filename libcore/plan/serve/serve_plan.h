// How to serve a workload on a cluster within an objective: the options ranked, and, when none keeps it, what would.
#pragma once
#include <string>
#include <vector>

#include "libcore/base/json.h"
#include "libcore/plan/serve/serve_advice.h"
#include "libcore/plan/serve/serve_options.h"

namespace rw {

struct ServePlan {
  std::vector<ServeOption> options;  // ranked
  std::vector<ServeAdvice> advice;   // when none is feasible, the smallest change first
  bool feasible() const { return !options.empty() && options.front().feasible; }
};
// Error{usage} when --memory is more than any device has.
ServePlan plan_serving(const ServePlanQuery& query);

Json serve_plan_json(const ServePlanQuery& query, const ServePlan& plan);
// For people: a table, the best option's numbers, the advice.
std::string serve_plan_text(const ServePlanQuery& query, const ServePlan& plan);

}  // namespace rw
