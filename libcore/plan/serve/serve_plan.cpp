#include "libcore/plan/serve/serve_plan.h"

#include <algorithm>

#include "libcore/base/error.h"
#include "libcore/base/units.h"

namespace rw {
namespace {

void check_memory(const ServePlanQuery& q) {
  const DeviceType* largest = nullptr;
  const auto room = [](const DeviceType& d) { return d.memory - d.reserve; };
  for (const NodeType& node : q.cluster.nodes) {
    const DeviceType& device = q.cluster.device_of(node);
    if (largest == nullptr || room(device) > room(*largest)) largest = &device;
  }
  if (largest == nullptr || q.spec.serve.memory <= room(*largest)) return;
  fail(ErrorKind::usage, "--memory: expected at most the {} that device {} has{}, found {}",
       format_bytes(static_cast<double>(room(*largest))), largest->name,
       largest->reserve > 0 ? " beside its reserve" : "", format_bytes(static_cast<double>(q.spec.serve.memory)));
}

}  // namespace

ServePlan plan_serving(const ServePlanQuery& query) {
  check_memory(query);
  ServePlan plan{.options = serve_options(query), .advice = {}};
  if (!plan.feasible()) plan.advice = serve_advice(query, plan.options);
  return plan;
}

}  // namespace rw
