// Lines through the times of a collective: seconds = alpha + bytes / bandwidth, one line or two.
//
// One line over all sizes misses NCCL's published times by 7 to 15 % on average, two by 3 to 8 %: small messages go by
// another protocol than large ones.
#pragma once
#include <vector>

#include "libcore/spec/cluster_spec.h"

namespace rw {

struct TimedSize {
  double bytes = 0, seconds = 0;  // both above 0
};

// Least squares of the relative error (Sum ((alpha + bytes / bandwidth) / seconds - 1)^2) with alpha and 1 / bandwidth
// not below 0; of all cuts between sizes that leave two to a side the best, and one line where the cut gains nothing.
// The second line starts where they cross, if that lies between its sizes, else in the geometric middle. Several times
// of a size count as one, their median. Error{input} without any point, or with one that is not above 0.
std::vector<LinkSegment> fit_segments(std::vector<TimedSize> points);

// To four significant digits: what follows in a measured number is noise.
double four_digits(double value);

// Of the points: |line / seconds - 1|.
struct FitError {
  double mean = 0, worst = 0;
};
FitError fit_error(const std::vector<LinkSegment>& segments, const std::vector<TimedSize>& points);

}  // namespace rw
