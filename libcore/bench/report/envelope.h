// Long series made short enough to draw, without losing what would be seen.
#pragma once
#include <cstdint>
#include <vector>

namespace rw {

struct Point {
  double x = 0, y = 0;  // y: NaN is a gap
};

// At most four points for each of `columns` equal parts of the x range: the first, the lowest, the highest and the last
// (M4, Jugel et al. 2014), so that the drawn line has every spike of the whole one. `points` ascend in x. A gap stays
// one. Unchanged when there are no more than 4 * columns.
std::vector<Point> envelope(const std::vector<Point>& points, int64_t columns);

// Means of `rows` (each as long as x) over at most `columns` runs of neighbours, for areas that add up. The new x is
// each run's first. NaN counts as absent; a run of nothing else is NaN.
struct Means {
  std::vector<double> x;
  std::vector<std::vector<double>> rows;
  int64_t per_column = 1;
};
Means column_means(const std::vector<double>& x, const std::vector<std::vector<double>>& rows, int64_t columns);

}  // namespace rw
