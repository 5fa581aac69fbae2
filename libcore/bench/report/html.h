// Pieces of HTML text.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rw {

// Text that is shown as it is, whatever it holds: markup is written out, control characters and bytes that are no UTF-8
// become U+FFFD.
std::string escape_html(std::string_view text);
// At most n characters; a longer one loses its middle.
std::string shortened(const std::string& text, size_t n);

struct HtmlTable {
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;  // plain text: escaped here
  size_t text_columns = 1;                     // the first ones; the others hold numbers and stand to the right
};
std::string html_table(const HtmlTable& table);

struct HtmlFigure {
  std::string title, picture, legend, caption;  // picture, legend: HTML; the others plain text
};
std::string html_figure(const HtmlFigure& figure);
std::string html_note(const std::string& text);  // plain text: something is missing or to be known
std::string html_section(const std::string& id, const std::string& title, const std::string& body);

// A number for people; "-" where it is not known.
std::string number_text(double v, int digits = 4);
std::string seconds_text(double s);  // "1.2 ms", "3.4 s", "2:05"
std::string bytes_text(double bytes);
std::string percent_text(double share, int decimals = 1);

// A unit in which values up to `most` read well.
struct Unit {
  double factor = 1;  // of the base unit
  const char* name = "";
};
Unit seconds_unit(double most);  // us, ms, s, min, h
Unit bytes_unit(double most);    // B, KiB, MiB, GiB, TiB

extern const char* const kPageStyle;  // CSS

}  // namespace rw
