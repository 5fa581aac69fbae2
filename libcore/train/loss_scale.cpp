#include "libcore/train/loss_scale.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "libcore/base/check.h"
#include "libcore/base/error.h"

namespace rw {
namespace {

constexpr double kLargest = std::numeric_limits<float>::max();

}  // namespace

LossScale::LossScale(double initial, int64_t window) : scale_(initial), window_(window) {
  CHECK(initial >= kFloor && initial <= kLargest && window >= 1, "a scale of %g, a window of %lld", initial,
        static_cast<long long>(window));
}

void LossScale::observe(bool overflow) {
  if (overflow) {
    scale_ = std::max(kFloor, scale_ / 2);
    good_steps_ = 0;
  } else if (++good_steps_ >= window_) {
    if (scale_ * 2 <= kLargest) scale_ *= 2;
    good_steps_ = 0;
  }
}

Json LossScale::state() const { return {{"scale", scale_}, {"good_steps", good_steps_}}; }

void LossScale::restore(const Json& state, const std::string& where) {
  const double scale = json_number(state, "scale", where);
  const int64_t good_steps = json_int(state, "good_steps", where);
  if (!(scale >= kFloor && scale <= kLargest) || good_steps < 0)
    fail(ErrorKind::input, "{}: expected a loss scale of at least {} and a count of steps, found {} and {}", where,
         kFloor, scale, good_steps);
  scale_ = scale;
  good_steps_ = good_steps;
}

}  // namespace rw
