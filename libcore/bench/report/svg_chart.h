// Charts as data, and their drawing: axes, lines, areas, bars, distributions. Colours are names of the page's style
// sheet ("compute", "s0"), so that one thing has one colour everywhere, in light and in dark.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "libcore/bench/report/envelope.h"

namespace rw {

enum class Draw : uint8_t { line, dots, area };
struct Series {
  std::string name, colour;
  std::vector<Point> points;  // ascending x
  Draw draw = Draw::line;
};
// Something that happened at x. tall: a line over the whole height; otherwise a tick on the axis.
struct ChartMark {
  double x = 0;
  std::string name, colour;
  bool tall = false;
  std::string text;  // shown when pointed at
};
struct Axis {
  std::string label;  // with the unit
  bool log = false;
  std::optional<double> low, high;  // otherwise the data's
};
struct Chart {
  std::string title, description;  // for readers of the picture's text
  Axis x, y;
  std::vector<Series> series;
  std::vector<ChartMark> marks;
  bool stacked = false;  // areas on top of one another; all series have the same x
};

// An <svg> element of 640 x 270 units. Series are decimated (envelope); marks that fall on the same spot are drawn
// once. Text is escaped. Without a finite point: a frame that says "no data".
std::string chart_svg(const Chart& chart);
// What the colours mean, as HTML: wraps on narrow screens.
std::string chart_legend(const Chart& chart);

struct BarPart {
  std::string name, colour;
  double value = 0;
};
struct BarRow {
  std::string label;
  std::vector<BarPart> parts;  // side by side, adding up; NaN and negative ones are left out
  std::string text;            // behind the bar
};
struct BarChart {
  std::string title, description, axis;
  std::vector<BarRow> rows;
};
std::string bars_svg(const BarChart& chart);
std::string bars_legend(const BarChart& chart);

// Share of values at or below each: steps through the order statistics, as a series from 0 to 1.
Series cdf_series(std::string name, std::string colour, std::vector<double> values);

// Ticks at 1, 2 or 5 times a power of ten, about n of them; on a log axis powers of ten (with 2 and 5 when few).
std::vector<double> axis_ticks(double low, double high, bool log, int n);
std::string tick_text(double value);  // "1200", "12k", "0.004", "1e-7"
// Whether values spread so far (a factor of 50, none at or below 0) that a log axis reads better.
bool wants_log(const std::vector<Series>& series);

}  // namespace rw
