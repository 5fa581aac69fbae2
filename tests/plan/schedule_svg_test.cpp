#include "libcore/plan/draw/schedule_svg.h"

#include <doctest/doctest.h>

#include <cctype>
#include <cstring>
#include <string>
#include <vector>

using namespace rw;

namespace {

ScheduleView even(ScheduleKind kind, int p, int v, int m) {
  ScheduleView view = even_schedule({.shape = {.kind = kind, .stages = p, .chunks = v, .micro_batches = m},
                                     .forward_s = 1e-3,
                                     .backward_s = 2e-3,
                                     .message_s = 1e-5});
  view.title = "a < b & \"c\" > d\n";
  return view;
}

size_t count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + what.size())) ++n;
  return n;
}

// XML 1.0 as far as this document uses it: one root, nested tags, quoted attributes once each, the five entities. ""
// or what is wrong.
std::string fault_in(const std::string& xml) {
  std::vector<std::string> open;
  size_t at = xml.find("?>");
  if (xml.rfind("<?xml", 0) != 0 || at == std::string::npos) return "no declaration";
  at += 2;
  int roots = 0;
  const auto fault = [&](const char* what) { return std::string(what) + " at " + std::to_string(at); };
  while (at < xml.size()) {
    if (xml[at] == '&') {
      const size_t end = xml.find(';', at);
      const std::string name = end == std::string::npos ? "" : xml.substr(at + 1, end - at - 1);
      if (name != "amp" && name != "lt" && name != "gt" && name != "quot" && name != "apos") return fault("entity");
      at = end + 1;
    } else if (xml[at] != '<') {
      if (open.empty() && std::isspace(static_cast<unsigned char>(xml[at])) == 0) return fault("text outside");
      if (static_cast<unsigned char>(xml[at]) < 0x20 && std::strchr("\t\r\n", xml[at]) == nullptr) return fault("char");
      ++at;
    } else if (xml.compare(at, 2, "</") == 0) {
      const size_t end = xml.find('>', at);
      if (end == std::string::npos || open.empty() || xml.substr(at + 2, end - at - 2) != open.back())
        return fault("end tag");
      open.pop_back();
      at = end + 1;
    } else {
      size_t p = at + 1;
      while (p < xml.size() && (std::isalnum(static_cast<unsigned char>(xml[p])) != 0 || xml[p] == '-')) ++p;
      const std::string name = xml.substr(at + 1, p - at - 1);
      if (name.empty()) return fault("tag name");
      if (open.empty() && ++roots > 1) return fault("second root");
      std::vector<std::string> seen;
      for (;;) {
        while (p < xml.size() && std::isspace(static_cast<unsigned char>(xml[p])) != 0) ++p;
        if (xml.compare(p, 2, "/>") == 0 || xml[p] == '>') break;
        const size_t equals = xml.find("=\"", p),
                     close = equals == std::string::npos ? equals : xml.find('"', equals + 2);
        if (close == std::string::npos) return fault("attribute");
        const std::string key = xml.substr(p, equals - p);
        for (const char c : key)
          if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-') return fault("attribute name");
        for (const std::string& s : seen)
          if (s == key) return fault("attribute twice");
        if (xml.substr(equals + 2, close - equals - 2).find('<') != std::string::npos) return fault("< in attribute");
        seen.push_back(key);
        p = close + 1;
      }
      if (xml[p] == '>') open.push_back(name), at = p + 1;
      else at = p + 2;
    }
  }
  return open.empty() && roots == 1 ? "" : "not closed: " + (open.empty() ? "" : open.back());
}

}  // namespace

TEST_CASE("the checker finds faults") {
  CHECK(fault_in("<?xml version=\"1.0\"?>\n<a b=\"c\"><d/>&amp;</a>\n") == "");
  for (const char* bad : {"<a></a>", "<?xml?><a>", "<?xml?><a></b>", "<?xml?><a/><b/>", "<?xml?><a>&nbsp;</a>",
                          "<?xml?><a b=c/>", "<?xml?><a b=\"1\" b=\"2\"/>", "<?xml?><a/>x", "<?xml?><a>1 < 2</a>"})
    CHECK_MESSAGE(fault_in(bad) != "", bad);
}

TEST_CASE("valid XML, stable, one box for each action") {
  for (const ScheduleView& view : {even(ScheduleKind::one_f_one_b, 4, 1, 8), even(ScheduleKind::interleaved, 16, 3, 64),
                                   even(ScheduleKind::zb_h1, 5, 1, 7), even(ScheduleKind::gpipe, 1, 1, 1),
                                   even(ScheduleKind::gpipe, 40, 1, 41), even(ScheduleKind::one_f_one_b, 33, 1, 129)}) {
    const std::string svg = schedule_svg(view);
    CAPTURE(view.shape.stages);
    CHECK(fault_in(svg) == "");
    CHECK(svg == schedule_svg(view));
    CHECK(svg.find("a &lt; b &amp; &quot;c&quot; &gt; d") != std::string::npos);
    CHECK(svg.find("nan") == std::string::npos);
    CHECK(svg.find("inf") == std::string::npos);
    CHECK(count(svg, ">stage " + std::to_string(view.shape.stages - 1) + "<") == 2);  // timeline and memory
  }
  const std::string svg = schedule_svg(even(ScheduleKind::zb_h1, 5, 1, 7));
  // 5 stages * 7 micro-batches of each kind, and a box in the legend; the legend's stand without a tooltip.
  CHECK(count(svg, ", forward of micro-batch ") == 35);
  CHECK(count(svg, ", input gradient of micro-batch ") == 35);
  CHECK(count(svg, ", weight gradient of micro-batch ") == 35);
}

TEST_CASE("boxes lie where the time says") {
  // Two stages, one micro-batch: 1 + 1 forward, 2 + 2 backward ms with a message of 10 us each way: 6.02 ms over
  // 820 pixels from x = 76.
  const std::string svg = schedule_svg(even(ScheduleKind::gpipe, 2, 1, 1));
  const double pixel = 820 / 6.02;
  char box[80];
  std::snprintf(box, sizeof box, "<rect x=\"%.2f\" y=\"94.00\" width=\"%.2f\"", 76 + 1.01 * pixel, pixel);
  CHECK(svg.find(box) != std::string::npos);
  std::snprintf(box, sizeof box, "<rect x=\"%.2f\" y=\"62.00\" width=\"%.2f\"", 76 + 4.02 * pixel, 2 * pixel);
  CHECK(svg.find(box) != std::string::npos);
  CHECK(svg.find("6.02 ms, bubble 50.2 %") != std::string::npos);  // 6 of 12.04 ms
  CHECK(svg.find("time, ms") != std::string::npos);
}

TEST_CASE("numbers only where they fit; memory in bytes with what is there all the time") {
  CHECK(count(schedule_svg(even(ScheduleKind::one_f_one_b, 4, 1, 8)), "text-anchor=\"middle\">7<") >= 8);
  CHECK(count(schedule_svg(even(ScheduleKind::one_f_one_b, 16, 1, 500)), "text-anchor=\"middle\">433<") == 0);
  ScheduleView view = even(ScheduleKind::one_f_one_b, 3, 1, 5);
  CHECK(schedule_svg(view).find("optimizer state") == std::string::npos);
  view.in_bytes = true;
  view.base = {1e9, 2e9, 3e9};
  for (auto& stage : view.kept) stage[0] = 1e9;
  const std::string svg = schedule_svg(view);
  CHECK(svg.find("optimizer state") != std::string::npos);
  CHECK(svg.find("most 3.7 GiB") != std::string::npos);  // 4e9 on every stage
  CHECK(fault_in(svg) == "");
  // A million boxes' tooltips would make a file that nobody opens.
  CHECK(count(schedule_svg(even(ScheduleKind::one_f_one_b, 8, 1, 500)), "of micro-batch") == 0);
}
