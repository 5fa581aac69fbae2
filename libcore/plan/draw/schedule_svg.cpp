#include "libcore/plan/draw/schedule_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "libcore/base/units.h"

namespace rw {
namespace {

constexpr double kLeft = 76, kRight = 96, kTop = 62, kGap = 4;
constexpr int kMostTooltips = 6000;  // boxes; more make a file that is slow to open
constexpr const char* kBubble = "#e2e4e8";
constexpr const char* kText = "#22262c";
constexpr const char* kBase = "#9aa3ae";
constexpr const char* kKept = "#d9a441";

using Colour = std::array<double, 3>;

Colour colour_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::forward: return {47, 111, 178};
    case ActionKind::backward: return {46, 140, 94};
    case ActionKind::backward_input: return {46, 140, 94};
    case ActionKind::backward_weight: return {142, 84, 162};
  }
  return {0, 0, 0};
}

// Later chunks are lighter.
Colour shade(ActionKind kind, int chunk, int chunks) {
  Colour c = colour_of(kind);
  const double white = chunks == 1 ? 0 : 0.62 * chunk / (chunks - 1);
  for (double& part : c) part += (255 - part) * white;
  return c;
}

std::string hex(const Colour& c) {
  return fmt::format("#{:02x}{:02x}{:02x}", static_cast<int>(std::lround(c[0])), static_cast<int>(std::lround(c[1])),
                     static_cast<int>(std::lround(c[2])));
}

// Of the ITU-R BT.601 luma: dark letters on light boxes.
bool is_light(const Colour& c) { return 0.299 * c[0] + 0.587 * c[1] + 0.114 * c[2] > 150; }

// Text that XML 1.0 allows, with its markup written out.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') out += "&amp;";
    else if (c == '<') out += "&lt;";
    else if (c == '>') out += "&gt;";
    else if (c == '"') out += "&quot;";
    else if (static_cast<unsigned char>(c) < 0x20) out += ' ';
    else out += c;
  }
  return out;
}

// The unit in which a whole of so many seconds reads well.
struct TimeUnit {
  double seconds;
  const char* name;
};
TimeUnit unit_for(double seconds) {
  if (seconds >= 1) return {1, "s"};
  return seconds >= 1e-3 ? TimeUnit{1e-3, "ms"} : TimeUnit{1e-6, "us"};
}

// 1, 2 or 5 times a power of ten, so that about `n` of them make `whole`.
double round_step(double whole, double n) {
  const double raw = whole / n, power = std::pow(10, std::floor(std::log10(raw)));
  for (const double f : {1.0, 2.0, 5.0})
    if (raw <= f * power * (1 + 1e-9)) return f * power;
  return 10 * power;
}

class Picture {
 public:
  explicit Picture(const ScheduleView& view) : view_(view), stages_(view.shape.stages) {
    row_ = stages_ <= 8 ? 28 : stages_ <= 16 ? 20 : stages_ <= 32 ? 13 : 9;
    strip_ = stages_ <= 8 ? 34 : stages_ <= 16 ? 24 : stages_ <= 32 ? 15 : 10;
    font_ = stages_ <= 8 ? 11 : stages_ <= 16 ? 10 : 8;
    const double works = 2.0 * view.shape.micro_batches * view.shape.chunks + 2.0 * (stages_ - 1);
    plot_ = std::clamp(works * 22, 820.0, 1700.0);
    memory_top_ = kTop + stages_ * (row_ + kGap) + 62;
    width_ = kLeft + plot_ + kRight;
    height_ = memory_top_ + stages_ * (strip_ + kGap) + 74;
    for (int s = 0; s < stages_; ++s) most_ = std::max(most_, peak_memory(view, s));
    size_t boxes = 0;
    for (const auto& stage : view.timeline.of_stage) boxes += stage.size();
    tooltips_ = boxes <= kMostTooltips;
  }

  std::string draw() {
    add("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    add("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} "
        "{1:.0f}\" "
        "font-family=\"Helvetica, Arial, sans-serif\" font-size=\"{2:.0f}\">\n",
        width_, height_, font_);
    add("<title>{}</title>\n", escaped(heading()));
    add("<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n");
    text({.x = kLeft, .y = 26, .text = heading(), .size = 16});
    text({.x = kLeft, .y = 46, .text = view_.title, .size = 12, .fill = "#5a626c"});
    for (int s = 0; s < stages_; ++s) draw_stage(s);
    draw_axis(kTop + stages_ * (row_ + kGap) + 2);
    text({.x = kLeft, .y = memory_top_ - 8, .text = memory_heading(), .size = 12});
    for (int s = 0; s < stages_; ++s) draw_memory(s);
    draw_legend(height_ - 40);
    add("</svg>\n");
    return std::move(out_);
  }

 private:
  struct Text {
    double x, y;
    std::string text;
    double size = 0;  // 0: the picture's
    const char* fill = kText;
    const char* anchor = "start";
  };

  template <typename... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }
  void text(const Text& t) {
    if (t.text.empty()) return;
    add("<text x=\"{:.2f}\" y=\"{:.2f}\" fill=\"{}\" text-anchor=\"{}\"", t.x, t.y, t.fill, t.anchor);
    if (t.size > 0) add(" font-size=\"{:.0f}\"", t.size);
    add(">{}</text>\n", escaped(t.text));
  }
  double x_of(double seconds) const {
    return kLeft + (view_.timeline.seconds > 0 ? plot_ * seconds / view_.timeline.seconds : 0);
  }
  std::string amount(double v) const { return view_.in_bytes ? format_bytes(v) : fmt::format("{:.4g}", v); }

  std::string heading() const {
    const TimeUnit unit = unit_for(view_.timeline.seconds);
    return fmt::format("{}, {} stages{}, {} micro-batches: {:.4g} {}, bubble {:.1f} %", schedule_name(view_.shape.kind),
                       stages_, view_.shape.chunks > 1 ? fmt::format(" of {} chunks", view_.shape.chunks) : "",
                       view_.shape.micro_batches, view_.timeline.seconds / unit.seconds, unit.name,
                       100 * view_.timeline.bubble);
  }
  std::string memory_heading() const {
    return fmt::format("{}, each row from 0 to {}",
                       view_.in_bytes ? "Memory held" : "Micro-batches whose activations are held", amount(most_));
  }

  void draw_stage(int s) {
    const double y = kTop + s * (row_ + kGap), baseline = y + row_ / 2 + font_ * 0.36;
    text({.x = kLeft - 8, .y = baseline, .text = fmt::format("stage {}", s), .anchor = "end"});
    add("<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\"/>\n", kLeft, y, plot_, row_,
        kBubble);
    for (const TimedAction& a : view_.timeline.of_stage[static_cast<size_t>(s)]) draw_box(s, a, y);
    const double idle = 1 - busy_seconds(view_, s) / std::max(view_.timeline.seconds, 1e-300);
    text({.x = kLeft + plot_ + 8, .y = baseline, .text = fmt::format("idle {:.1f} %", 100 * std::max(0.0, idle))});
  }

  void draw_box(int stage, const TimedAction& a, double y) {
    const double x = x_of(a.begin), w = x_of(a.end) - x;
    const Colour colour = shade(a.action.kind, a.action.chunk, view_.shape.chunks);
    const std::string number = std::to_string(a.action.micro_batch);
    const bool numbered = w >= font_ * 0.6 * static_cast<double>(number.size()) + 3;
    const bool framed = w >= 2.5;
    const TimeUnit unit = unit_for(view_.timeline.seconds);
    add("<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\"{}", x, y, w, row_, hex(colour),
        framed ? " stroke=\"#ffffff\" stroke-width=\"0.6\"" : "");
    if (tooltips_)
      add("><title>stage {}, {} of micro-batch {}, chunk {}: {:.4g} to {:.4g} {}</title></rect>\n", stage,
          phrase(a.action.kind), number, a.action.chunk, a.begin / unit.seconds, a.end / unit.seconds, unit.name);
    else add("/>\n");
    if (numbered)
      text({.x = x + w / 2,
            .y = y + row_ / 2 + font_ * 0.36,
            .text = number,
            .fill = is_light(colour) ? kText : "#ffffff",
            .anchor = "middle"});
  }

  static const char* phrase(ActionKind kind) {
    switch (kind) {
      case ActionKind::forward: return "forward";
      case ActionKind::backward: return "backward";
      case ActionKind::backward_input: return "input gradient";
      case ActionKind::backward_weight: return "weight gradient";
    }
    return "?";
  }

  void draw_axis(double y) {
    const double whole = view_.timeline.seconds;
    add("<path d=\"M{:.2f} {:.2f}H{:.2f}\" stroke=\"{}\" fill=\"none\"/>\n", kLeft, y, kLeft + plot_, kText);
    if (whole <= 0) return;
    const TimeUnit unit = unit_for(whole);
    const double step = round_step(whole, plot_ / 90);
    for (int64_t i = 0; static_cast<double>(i) * step <= whole * (1 + 1e-9); ++i) {
      const double at = static_cast<double>(i) * step;
      add("<path d=\"M{:.2f} {:.2f}v5\" stroke=\"{}\" fill=\"none\"/>\n", x_of(at), y, kText);
      text({.x = x_of(at), .y = y + 16, .text = fmt::format("{:.4g}", at / unit.seconds), .anchor = "middle"});
    }
    text({.x = kLeft + plot_ + 8, .y = y + 16, .text = fmt::format("time, {}", unit.name)});
  }

  void draw_memory(int s) {
    const double y = memory_top_ + s * (strip_ + kGap), bottom = y + strip_;
    const double scale = most_ > 0 ? strip_ / most_ : 0;
    const std::vector<MemoryStep> steps = memory_over_time(view_, s);
    add("<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"#f4f5f7\"/>\n", kLeft, y, plot_,
        strip_);
    add("<path fill=\"{}\" d=\"M{:.2f} {:.2f}", kKept, kLeft, bottom);
    for (const MemoryStep& step : steps)
      add("H{:.2f}V{:.2f}", x_of(std::min(step.at, view_.timeline.seconds)), bottom - scale * step.amount);
    add("H{:.2f}V{:.2f}Z\"/>\n", kLeft + plot_, bottom);
    if (!view_.base.empty()) {
      const double h = scale * view_.base[static_cast<size_t>(s)];
      add("<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\"/>\n", kLeft, bottom - h,
          plot_, h, kBase);
    }
    const double baseline = y + strip_ / 2 + font_ * 0.36;
    text({.x = kLeft - 8, .y = baseline, .text = fmt::format("stage {}", s), .anchor = "end"});
    text({.x = kLeft + plot_ + 8, .y = baseline, .text = "most " + amount(peak_memory(view_, s))});
  }

  // One entry: a box in each colour, then its name. Returns where the next begins.
  double draw_entry(double x, double y, const std::vector<std::string>& colours, const std::string& name) {
    for (const std::string& colour : colours) {
      add("<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"14\" height=\"12\" fill=\"{}\"/>\n", x, y - 10, colour);
      x += 15;
    }
    text({.x = x + 4, .y = y, .text = name, .size = 11});
    return x + 22 + 6.2 * static_cast<double>(name.size());
  }

  void draw_legend(double y) {
    const bool halves = view_.shape.kind == ScheduleKind::zb_h1;
    const auto shades = [&](ActionKind kind) {
      std::vector<std::string> colours;
      const int n = std::min(view_.shape.chunks, 8);
      for (int c = 0; c < n; ++c) colours.push_back(hex(shade(kind, c, n)));
      return colours;
    };
    double x = draw_entry(kLeft, y, shades(ActionKind::forward), "forward");
    x = draw_entry(x, y, shades(halves ? ActionKind::backward_input : ActionKind::backward),
                   halves ? "input gradients" : "backward");
    if (halves) x = draw_entry(x, y, shades(ActionKind::backward_weight), "weight gradients");
    x = draw_entry(x, y, {kBubble}, "bubble");
    const double second = y + 20;
    x = draw_entry(kLeft, second, {kKept}, "activations");
    if (!view_.base.empty()) x = draw_entry(x, second, {kBase}, "weights, gradients, optimizer state, the rest");
    std::string note = "numbers are micro-batches";
    if (view_.shape.chunks > 1) note += ", the lighter the later the chunk";
    text({.x = x, .y = second, .text = note, .size = 11, .fill = "#5a626c"});
  }

  const ScheduleView& view_;
  int stages_;
  double row_ = 0, strip_ = 0, font_ = 0, plot_ = 0, memory_top_ = 0, width_ = 0, height_ = 0, most_ = 0;
  bool tooltips_ = true;
  std::string out_;
};

}  // namespace

std::string schedule_svg(const ScheduleView& view) { return Picture(view).draw(); }

}  // namespace rw
