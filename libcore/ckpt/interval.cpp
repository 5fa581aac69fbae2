#include "libcore/ckpt/interval.h"

#include <algorithm>
#include <cmath>

#include "libcore/base/check.h"

namespace rw {

double young_interval_s(double cost_s, double mtbf_s) { return std::sqrt(2 * cost_s * mtbf_s); }

double optimal_interval_s(double cost_s, double mtbf_s) {
  CHECK(cost_s >= 0 && mtbf_s > 0, "cost %g s, mtbf %g s", cost_s, mtbf_s);
  if (cost_s >= 2 * mtbf_s) return mtbf_s;
  const double ratio = cost_s / (2 * mtbf_s);
  return young_interval_s(cost_s, mtbf_s) * (1 + std::sqrt(ratio) / 3 + ratio / 9) - cost_s;
}

int64_t optimal_interval_steps(const IntervalInputs& in) {
  CHECK(in.step_s > 0 && in.background_s >= 0, "step %g s, background %g s", in.step_s, in.background_s);
  constexpr double kMost = 1e15;
  const double wanted = std::min(kMost, std::round(optimal_interval_s(in.cost_s, in.mtbf_s) / in.step_s));
  const double least = std::min(kMost, std::ceil(in.background_s / in.step_s) + 1);
  return static_cast<int64_t>(std::max({1.0, least, wanted}));
}

}  // namespace rw
