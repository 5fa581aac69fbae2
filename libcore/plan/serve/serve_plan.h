// How to serve a workload on a cluster within an objective: the options ranked, and, when none keeps it, what would.
#pragma once
#include <string>
#include <vector>

#include "libcore/base/json.h"
#include "libcore/plan/serve/serve_options.h"

namespace rw {

// One change that would make a plan feasible.
struct ServeAdvice {
  std::string kind;  // "itl-budget", "tp", "replicas", "nodes", "rate", "slo", "context", "quantize"
  std::string text;
  double change = 0;  // relative to what was asked (0: nothing is given up); the smallest is the first
};

struct ServePlan {
  std::vector<ServeOption> options;  // ranked
  std::vector<ServeAdvice> advice;   // when none is feasible, the smallest change first
  bool feasible() const { return !options.empty() && options.front().feasible; }
};
ServePlan plan_serving(const ServePlanQuery& query);

Json serve_plan_json(const ServePlanQuery& query, const ServePlan& plan);
// For people: a table, the best option's numbers, the advice.
std::string serve_plan_text(const ServePlanQuery& query, const ServePlan& plan);

}  // namespace rw
