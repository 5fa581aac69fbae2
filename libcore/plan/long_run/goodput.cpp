#include "libcore/plan/long_run/goodput.h"

#include <algorithm>
#include <cmath>

#include "libcore/base/check.h"
#include "libcore/base/error.h"

namespace rw {
namespace {

void check_terms(const FailureTerms& t) {
  CHECK(t.interval_s > 0 && t.mtbf_s > 0, "interval %g s, mtbf %g s", t.interval_s, t.mtbf_s);
  CHECK(t.cost_s >= 0 && t.persist_s >= 0 && t.detect_s >= 0 && t.restart_s >= 0,
        "cost %g s, persist %g s, detect %g s, restart %g s", t.cost_s, t.persist_s, t.detect_s, t.restart_s);
}

}  // namespace

double expected_goodput(const FailureTerms& t) {
  check_terms(t);
  const double away = (t.detect_s + t.restart_s + t.persist_s) / t.mtbf_s;
  return t.interval_s / t.mtbf_s * std::exp(-away) / std::expm1((t.interval_s + t.cost_s) / t.mtbf_s);
}

double first_order_goodput(const FailureTerms& t) {
  check_terms(t);
  return std::max(0.0, 1 - (lost_work_s(t) + t.detect_s + t.restart_s) / t.mtbf_s - t.cost_s / t.interval_s);
}

double lost_work_s(const FailureTerms& t) { return t.interval_s / 2 + t.persist_s; }

double job_mtbf_s(const ClusterSpec& cluster, int64_t devices) {
  CHECK(devices > 0, "%lld devices", static_cast<long long>(devices));
  const auto all = static_cast<double>(cluster.device_count()), used = static_cast<double>(devices);
  if (cluster.mtbf_hours > 0) return cluster.mtbf_hours * 3600 * all / used;
  double failures_per_hour = 0;
  for (const NodeType& node : cluster.nodes) {
    const DeviceType& device = cluster.device_of(node);
    if (device.mtbf_hours <= 0)
      fail(ErrorKind::usage,
           "{}: how often the job fails is unknown: expected mtbf-hours of the cluster or of [device.{}], or --mtbf "
           "HOURS (of the whole job)",
           cluster.where, device.name);
    failures_per_hour += static_cast<double>(node.count * node.devices) / device.mtbf_hours;
  }
  return 3600 * all / (failures_per_hour * used);
}

}  // namespace rw
