#include "libcore/plan/measure/median_seconds.h"

#include <vector>

#include "libcore/base/clock.h"
#include "libcore/base/median.h"

namespace rw {

double median_seconds(const std::function<void()>& call, double seconds) {
  constexpr size_t kFewest = 5;
  call();
  std::vector<double> samples;
  double now = now_s();
  for (const double begin = now; samples.size() < kFewest || now < begin + seconds;) {
    call();
    const double end = now_s();
    samples.push_back(end - now);
    now = end;
  }
  return median(std::move(samples));
}

}  // namespace rw
