#include "libcore/serve/step_costs.h"

#include <algorithm>
#include <cmath>

namespace rw {
namespace {

constexpr double kNew = 0.2;     // weight of a new measurement
constexpr double kMargin = 0.9;  // of a budget that is planned for
constexpr double kTelling = 32;  // prefill tokens whose step counts in full

double blend(double old, double now, double weight = kNew) { return old == 0 ? now : old + weight * (now - old); }

}  // namespace

double StepCosts::decode_step_s(int64_t decodes) const {
  return decodes == 0 ? 0 : base_s_ + per_decode_s_ * static_cast<double>(decodes);
}

void StepCosts::add(int64_t decodes, int64_t prefill_tokens, double seconds) {
  if (prefill_tokens > 0) {
    // What a step costs whatever is in it (reading the weights) is in the base. Few tokens say little.
    const double tokens = static_cast<double>(prefill_tokens),
                 rest = std::max(seconds - base_s_ - per_decode_s_ * static_cast<double>(decodes), 0.0),
                 weight = kNew * std::min(1.0, tokens / kTelling);
    prefill_s_ = blend(prefill_s_, rest / tokens, weight);
    return;
  }
  if (decodes == 0) return;
  // Two numbers of sequences give a slope; one alone is taken as the base.
  const double n = static_cast<double>(decodes);
  if (last_n_ > 0 && std::abs(n - last_n_) >= 1) {
    const double slope = std::max(0.0, (seconds - last_s_) / (n - last_n_));
    per_decode_s_ = blend(per_decode_s_, std::min(slope, seconds / n));
  }
  base_s_ = std::max(0.0, blend(base_s_, seconds - per_decode_s_ * n));
  last_n_ = n;
  last_s_ = seconds;
}

int64_t StepCosts::chunk(int64_t decodes, double budget_s, int64_t least, int64_t most) const {
  if (budget_s <= 0 || decodes == 0) return most;
  if (prefill_s_ <= 0) return std::min(most, std::max<int64_t>(least, 32));  // to learn from
  const double room = (kMargin * budget_s - decode_step_s(decodes)) / prefill_s_;
  return std::clamp(static_cast<int64_t>(std::min(room, 1e9)), std::min(least, most), most);
}

}  // namespace rw
