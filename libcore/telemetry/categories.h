// The one list of time categories and MFU conventions, used by metrics, plans and reports alike.
#pragma once
#include <array>
#include <cstddef>

#include "libcore/base/clock.h"

namespace rw {

// communication: seconds in which the rank waits for a collective or for a message that is late. bubble: waiting for
// the neighbours in the pipeline.
enum class TimeCategory { compute, communication, bubble, data, checkpoint, n_categories };
const char* time_category_name(TimeCategory c);

// Seconds by category; what lies between two marks is charged to one of them.
class StepClock {
 public:
  void start() {
    seconds_.fill(0);
    last_ = start_ = now_s();
  }
  // Charges the time since the last mark to `c`.
  void mark(TimeCategory c) {
    const double now = now_s();
    seconds_[static_cast<size_t>(c)] += now - last_;
    last_ = now;
  }
  void move(TimeCategory from, TimeCategory to, double seconds) {
    seconds_[static_cast<size_t>(from)] -= seconds;
    seconds_[static_cast<size_t>(to)] += seconds;
  }
  double seconds(TimeCategory c) const { return seconds_[static_cast<size_t>(c)]; }
  double total() const { return last_ - start_; }

 private:
  std::array<double, static_cast<size_t>(TimeCategory::n_categories)> seconds_{};
  double start_ = 0, last_ = 0;
};

}  // namespace rw
