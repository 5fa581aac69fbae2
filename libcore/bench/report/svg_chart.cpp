#include "libcore/bench/report/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

#include "libcore/bench/report/html.h"

namespace rw {
namespace {

constexpr double kWidth = 640, kHeight = 270, kLeft = 70, kRight = 16, kTop = 30, kBottom = 48;
constexpr int64_t kColumns = 560;  // of a decimated line: about one a pixel

struct Range {
  double low = INFINITY, high = -INFINITY;
  void take(double v) {
    if (std::isfinite(v)) low = std::min(low, v), high = std::max(high, v);
  }
  bool empty() const { return !(low <= high); }
};

// Each area's upper edge when they are piled up, in the order given.
std::vector<Series> piled_up(const std::vector<Series>& series) {
  std::vector<Series> out = series;
  for (size_t s = 1; s < out.size(); ++s)
    for (size_t i = 0; i < out[s].points.size() && i < out[s - 1].points.size(); ++i) {
      const double below = out[s - 1].points[i].y, own = out[s].points[i].y;
      out[s].points[i].y = (std::isfinite(own) ? own : 0) + (std::isfinite(below) ? below : 0);
    }
  return out;
}

class Plot {
 public:
  explicit Plot(const Chart& chart) : chart_(chart), series_(chart.stacked ? piled_up(chart.series) : chart.series) {
    for (const Series& s : series_)
      for (const Point& p : s.points)
        if (std::isfinite(p.y) && (!chart.y.log || p.y > 0) && (!chart.x.log || p.x > 0)) x_.take(p.x), y_.take(p.y);
    if (!x_.empty()) settle_ranges();
  }

  std::string draw() {
    add("<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" class=\"chart\">\n<title>{}</title><desc>{}</desc>\n", kWidth,
        kHeight, escape_html(chart_.title), escape_html(chart_.description));
    if (x_.empty()) {
      add("<rect class=\"frame\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/><text x=\"{}\" y=\"{}\" "
          "text-anchor=\"middle\">no data</text></svg>\n",
          kLeft, kTop, kWidth - kLeft - kRight, kHeight - kTop - kBottom, kWidth / 2, kHeight / 2);
      return std::move(out_);
    }
    draw_axes();
    if (chart_.stacked)
      for (size_t s = series_.size(); s-- > 0;) draw_area(series_[s]);
    for (const ChartMark& m : chart_.marks)
      if (m.tall) draw_mark(m);
    for (const Series& s : series_)
      if (!chart_.stacked) draw_series(s);
    for (const ChartMark& m : chart_.marks)
      if (!m.tall) draw_mark(m);
    add("</svg>\n");
    return std::move(out_);
  }

 private:
  template <typename... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }

  void settle_ranges() {
    if (chart_.y.log) {
      y_.low /= 1.15, y_.high *= 1.15;
    } else {
      // Zero is in the picture unless that would flatten the curve.
      if (y_.low >= 0 && (chart_.stacked || y_.low < 0.35 * y_.high)) y_.low = 0;
      const double pad = y_.high > y_.low ? 0.05 * (y_.high - y_.low) : std::max(std::abs(y_.high) * 0.1, 1e-12);
      if (y_.low != 0) y_.low -= pad;
      y_.high += pad;
    }
    y_.low = chart_.y.low.value_or(y_.low), y_.high = chart_.y.high.value_or(y_.high);
    x_.low = chart_.x.low.value_or(x_.low), x_.high = chart_.x.high.value_or(x_.high);
    if (!(x_.high > x_.low)) {
      const double pad = chart_.x.log ? 0 : std::max(std::abs(x_.high) * 0.1, 0.5);
      x_.low = chart_.x.log ? x_.low / 2 : x_.low - pad, x_.high = chart_.x.log ? x_.high * 2 : x_.high + pad;
    }
  }

  static double share(double v, const Range& range, bool log) {
    return log ? std::log(v / range.low) / std::log(range.high / range.low)
               : (v - range.low) / (range.high - range.low);
  }
  double px(double x) const { return kLeft + (kWidth - kLeft - kRight) * share(x, x_, chart_.x.log); }
  double py(double y) const {
    return kHeight - kBottom - (kHeight - kTop - kBottom) * std::clamp(share(y, y_, chart_.y.log), 0.0, 1.0);
  }
  bool drawable(const Point& p) const {
    return std::isfinite(p.y) && (!chart_.y.log || p.y > 0) && (!chart_.x.log || p.x > 0);
  }

  void draw_axes() {
    const double bottom = kHeight - kBottom;
    for (const double t : axis_ticks(y_.low, y_.high, chart_.y.log, 5))
      add("<path class=\"grid\" d=\"M{:.0f} {:.1f}H{:.0f}\"/><text class=\"tick\" x=\"{:.0f}\" y=\"{:.1f}\" "
          "text-anchor=\"end\" dy=\".35em\">{}</text>\n",
          kLeft, py(t), kWidth - kRight, kLeft - 7, py(t), tick_text(t));
    for (const double t : axis_ticks(x_.low, x_.high, chart_.x.log, 6))
      add("<path class=\"axis\" d=\"M{0:.1f} {1:.0f}v5\"/><text class=\"tick\" x=\"{0:.1f}\" y=\"{2:.0f}\" "
          "text-anchor=\"middle\">{3}</text>\n",
          px(t), bottom, bottom + 19, tick_text(t));
    add("<path class=\"axis\" d=\"M{0:.0f} {1:.0f}V{2:.0f}H{3:.0f}\"/>\n", kLeft, kTop, bottom, kWidth - kRight);
    add("<text class=\"label\" x=\"4\" y=\"16\">{}</text><text class=\"label\" x=\"{:.0f}\" y=\"{:.0f}\" "
        "text-anchor=\"end\">{}</text>\n",
        escape_html(chart_.y.label), kWidth - kRight, kHeight - 8, escape_html(chart_.x.label));
  }

  void draw_series(const Series& s) {
    const std::vector<Point> points = envelope(s.points, kColumns);
    if (s.draw == Draw::dots) {
      for (const Point& p : points)
        if (drawable(p))
          add("<circle class=\"f-{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.4\"><title>{}: {:.5g} at "
              "{:.5g}</title></circle>\n",
              s.colour, px(p.x), py(p.y), escape_html(s.name), p.y, p.x);
      return;
    }
    add("<path class=\"line k-{}\" d=\"", s.colour);
    bool open = false, alone = false;
    std::string dots;
    for (const Point& p : points) {
      if (!drawable(p)) {
        if (alone) out_ += "h.1";  // a point between two gaps is still seen
        open = alone = false;
        continue;
      }
      add("{}{:.1f} {:.1f}", open ? 'L' : 'M', px(p.x), py(p.y));
      alone = !open, open = true;
    }
    if (alone) out_ += "h.1";
    add("\"/>\n");
  }

  // From the axis up: the areas below are drawn over it afterwards.
  void draw_area(const Series& s) {
    if (s.points.empty()) return;
    add("<path class=\"f-{}\" d=\"M{:.1f} {:.1f}", s.colour, px(s.points.front().x), kHeight - kBottom);
    double last = kLeft;
    for (const Point& p : s.points) {
      const double y = std::isfinite(p.y) ? p.y : 0;
      add("L{:.1f} {:.1f}", px(p.x), py(y));
      last = px(p.x);
    }
    add("L{:.1f} {:.1f}Z\"><title>{}</title></path>\n", last, kHeight - kBottom, escape_html(s.name));
  }

  void draw_mark(const ChartMark& m) {
    if (m.x < x_.low || m.x > x_.high) return;
    const double x = px(m.x), bottom = kHeight - kBottom;
    const std::string spot = fmt::format("{} {:.0f}", m.name, x);
    if (!drawn_.insert(spot).second) return;
    if (m.tall)
      add("<path class=\"mark k-{}\" d=\"M{:.1f} {:.0f}V{:.0f}\"><title>{}</title></path>\n", m.colour, x, kTop, bottom,
          escape_html(m.text));
    else
      add("<path class=\"f-{}\" d=\"M{:.1f} {:.0f}l-4 8h8z\"><title>{}</title></path>\n", m.colour, x, bottom - 8,
          escape_html(m.text));
  }

  const Chart& chart_;
  std::vector<Series> series_;
  Range x_, y_;
  std::set<std::string> drawn_;
  std::string out_;
};

std::string legend(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string out = "<div class=\"legend\">";
  for (const auto& [name, swatch] : entries)
    out += fmt::format("<span><i class=\"{}\"></i>{}</span>", swatch, escape_html(name));
  return out + "</div>\n";
}

}  // namespace

std::string chart_svg(const Chart& chart) { return Plot(chart).draw(); }

std::string chart_legend(const Chart& chart) {
  std::vector<std::pair<std::string, std::string>> entries;
  for (const Series& s : chart.series)
    entries.emplace_back(s.name, (chart.stacked          ? "area b-"
                                  : s.draw == Draw::dots ? "dot b-"
                                                         : "stroke b-") +
                                     s.colour);
  std::set<std::string> seen;
  for (const ChartMark& m : chart.marks)
    if (seen.insert(m.name).second) entries.emplace_back(m.name, (m.tall ? "bar b-" : "wedge b-") + m.colour);
  return entries.size() < 2 ? "" : legend(entries);
}

std::string bars_svg(const BarChart& chart) {
  constexpr double kRow = 34, kBar = 20, kName = 150, kText = 110;
  double most = 0;
  for (const BarRow& row : chart.rows) {
    double sum = 0;
    for (const BarPart& p : row.parts) sum += p.value > 0 ? p.value : 0;
    most = std::max(most, sum);
  }
  const double height = 8 + kRow * static_cast<double>(chart.rows.size()) + 40, width = kWidth - kName - kText;
  std::string out = fmt::format(
      "<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" class=\"chart\">\n<title>{}</title><desc>{}</desc>\n", kWidth,
      height, escape_html(chart.title), escape_html(chart.description));
  const double bottom = height - 34;
  if (most > 0)
    for (const double t : axis_ticks(0, most, false, 5))
      out += fmt::format(
          "<path class=\"grid\" d=\"M{0:.1f} 4V{1:.0f}\"/><text class=\"tick\" x=\"{0:.1f}\" y=\"{2:.0f}\" "
          "text-anchor=\"middle\">{3}</text>\n",
          kName + width * t / most, bottom, bottom + 16, tick_text(t));
  for (size_t r = 0; r < chart.rows.size(); ++r) {
    const BarRow& row = chart.rows[r];
    const double y = 8 + kRow * static_cast<double>(r);
    double x = kName;
    out += fmt::format("<text class=\"name\" x=\"{:.0f}\" y=\"{:.1f}\" text-anchor=\"end\" dy=\".35em\">{}</text>\n",
                       kName - 8, y + kBar / 2, escape_html(shortened(row.label, 22)));
    for (const BarPart& p : row.parts) {
      if (!(p.value > 0) || !(most > 0)) continue;
      const double w = width * p.value / most;
      out += fmt::format(
          "<rect class=\"f-{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.0f}\"><title>{}: "
          "{:.4g}</title></rect>\n",
          p.colour, x, y, w, kBar, escape_html(p.name), p.value);
      x += w;
    }
    out += fmt::format("<text class=\"name\" x=\"{:.1f}\" y=\"{:.1f}\" dy=\".35em\">{}</text>\n", x + 6, y + kBar / 2,
                       escape_html(row.text));
  }
  return out + fmt::format("<text class=\"label\" x=\"{:.0f}\" y=\"{:.0f}\" text-anchor=\"end\">{}</text></svg>\n",
                           kWidth - 4, height - 4, escape_html(chart.axis));
}

std::string bars_legend(const BarChart& chart) {
  std::vector<std::pair<std::string, std::string>> entries;
  std::set<std::string> seen;
  for (const BarRow& row : chart.rows)
    for (const BarPart& p : row.parts)
      if (p.value > 0 && seen.insert(p.name).second) entries.emplace_back(p.name, "area b-" + p.colour);
  return entries.size() < 2 ? "" : legend(entries);
}

Series cdf_series(std::string name, std::string colour, std::vector<double> values) {
  std::erase_if(values, [](double v) { return !std::isfinite(v); });
  std::sort(values.begin(), values.end());
  Series s{.name = std::move(name), .colour = std::move(colour), .points = {}};
  const auto n = static_cast<double>(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    s.points.push_back({values[i], static_cast<double>(i) / n});
    s.points.push_back({values[i], static_cast<double>(i + 1) / n});
  }
  return s;
}

std::vector<double> axis_ticks(double low, double high, bool log, int n) {
  std::vector<double> ticks;
  if (log) {
    if (!(low > 0) || !(high > low)) return ticks;
    const double decades = std::log10(high / low);
    const int each = decades < 1.2 ? 3 : decades < 3 ? 2 : 1;
    const int stride = std::max(1, static_cast<int>(std::ceil(decades / n)));
    for (int e = static_cast<int>(std::floor(std::log10(low))); e <= static_cast<int>(std::ceil(std::log10(high))); ++e)
      for (const double f : {1.0, 2.0, 5.0}) {
        if ((f == 5 && each < 3 && each != 2) || (f == 2 && each < 3) || (each == 1 && e % stride != 0)) continue;
        const double t = f * std::pow(10, e);
        if (t >= low * (1 - 1e-9) && t <= high * (1 + 1e-9)) ticks.push_back(t);
      }
    return ticks;
  }
  if (!(high > low) || n < 1) return {low};
  const double raw = (high - low) / n, power = std::pow(10, std::floor(std::log10(raw)));
  double step = 10 * power;
  for (const double f : {5.0, 2.0, 1.0})
    if (raw <= f * power * (1 + 1e-9)) step = f * power;
  for (double i = std::ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; ++i) ticks.push_back(i * step);
  return ticks;
}

std::string tick_text(double value) {
  const double size = std::abs(value);
  if (size < 1e-300) return "0";
  if (size >= 1e15 || size < 1e-4) return fmt::format("{:.3g}", value);
  for (const auto& [unit, name] : {std::pair{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e4, ""}})
    if (size >= unit) return *name ? fmt::format("{:.4g}{}", value / unit, name) : fmt::format("{:.4g}k", value / 1e3);
  return fmt::format("{:.4g}", value);
}

bool wants_log(const std::vector<Series>& series) {
  Range range;
  for (const Series& s : series)
    for (const Point& p : s.points) range.take(p.y);
  return !range.empty() && range.low > 0 && range.high > 50 * range.low;
}

}  // namespace rw
