// What to change where no option keeps the objective. Every advice has been followed before it is given: the question
// with what it names changed, and all else as it was asked, has an option that keeps the objective.
#pragma once
#include <string>
#include <vector>

#include "libcore/plan/serve/serve_options.h"

namespace rw {

// One change that would make a plan feasible.
struct ServeAdvice {
  // "mode", "itl-budget", "batch-tokens", "tp", "memory", "replicas", "nodes", "network", "rate", "slo", "context",
  // "quantize"
  std::string kind;
  std::string text;   // the flags to change, and what comes of them
  double change = 0;  // relative to what was asked (0: nothing is given up); the smallest is the first
};

// `options`: what the question has, ranked, none feasible. The smallest change first.
std::vector<ServeAdvice> serve_advice(const ServePlanQuery& query, const std::vector<ServeOption>& options);

}  // namespace rw
