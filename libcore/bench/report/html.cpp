#include "libcore/bench/report/html.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "libcore/base/units.h"

namespace rw {
namespace {

// Length of the UTF-8 sequence that begins at `at` (Unicode 15, table 3-7); 0 when it is none.
size_t sequence_length(std::string_view s, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned>(static_cast<unsigned char>(s[at + i])); };
  const unsigned b = byte(0);
  const size_t n = b < 0x80 ? 1 : b >= 0xC2 && b < 0xE0 ? 2 : (b & 0xF0) == 0xE0 ? 3 : b >= 0xF0 && b < 0xF5 ? 4 : 0;
  if (n == 0 || at + n > s.size()) return 0;
  for (size_t i = 1; i < n; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  if (n >= 3) {
    const unsigned c = byte(1);
    if ((b == 0xE0 && c < 0xA0) || (b == 0xED && c > 0x9F) || (b == 0xF0 && c < 0x90) || (b == 0xF4 && c > 0x8F))
      return 0;
  }
  return n;
}

}  // namespace

std::string escape_html(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t n = sequence_length(text, i);
    const char c = text[i];
    if (n == 0 || (n == 1 && (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) && c != '\n' && c != '\t'))
      out += "\xEF\xBF\xBD";
    else if (c == '&') out += "&amp;";
    else if (c == '<') out += "&lt;";
    else if (c == '>') out += "&gt;";
    else if (c == '"') out += "&quot;";
    else if (c == '\'') out += "&#39;";
    else out += text.substr(i, n);
    i += std::max<size_t>(n, 1);
  }
  return out;
}

std::string shortened(const std::string& text, size_t n) {
  if (text.size() <= n || n < 5) return text;
  // Cut between characters, not within one.
  size_t head = (n - 3) / 2, tail = text.size() - (n - 3 - head);
  while (head > 0 && (static_cast<unsigned char>(text[head]) & 0xC0) == 0x80) --head;
  while (tail < text.size() && (static_cast<unsigned char>(text[tail]) & 0xC0) == 0x80) ++tail;
  return text.substr(0, head) + "..." + text.substr(tail);
}

std::string html_table(const HtmlTable& table) {
  std::string out = "<div class=\"scroll\"><table>";
  const auto kind = [&](size_t column) { return column < table.text_columns ? "" : " class=\"n\""; };
  if (!table.head.empty()) {
    out += "<thead><tr>";
    for (size_t c = 0; c < table.head.size(); ++c)
      out += fmt::format("<th scope=\"col\"{}>{}</th>", kind(c), escape_html(table.head[c]));
    out += "</tr></thead>";
  }
  out += "<tbody>\n";
  for (const std::vector<std::string>& row : table.rows) {
    out += "<tr>";
    for (size_t c = 0; c < row.size(); ++c) out += fmt::format("<td{}>{}</td>", kind(c), escape_html(row[c]));
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string html_figure(const HtmlFigure& f) {
  std::string out = fmt::format("<figure><h4>{}</h4>\n{}{}", escape_html(f.title), f.picture, f.legend);
  if (!f.caption.empty()) out += fmt::format("<figcaption>{}</figcaption>", escape_html(f.caption));
  return out + "</figure>\n";
}

std::string html_note(const std::string& text) { return fmt::format("<p class=\"note\">{}</p>\n", escape_html(text)); }

std::string html_section(const std::string& id, const std::string& title, const std::string& body) {
  return fmt::format("<section id=\"{}\"><h3>{}</h3>\n{}</section>\n", escape_html(id), escape_html(title), body);
}

std::string number_text(double v, int digits) {
  if (!std::isfinite(v)) return "-";
  if (std::abs(v) >= 1e4 && std::abs(v) < 1e15 && v == std::floor(v)) {
    std::string whole = fmt::format("{:.0f}", std::abs(v));
    for (auto at = static_cast<int64_t>(whole.size()) - 3; at > 0; at -= 3) whole.insert(static_cast<size_t>(at), ",");
    return v < 0 ? "-" + whole : whole;
  }
  if (std::abs(v) >= 1e4 && std::abs(v) < 1e9) return number_text(std::round(v));
  return fmt::format("{:.{}g}", v, digits);
}

std::string seconds_text(double s) {
  if (!std::isfinite(s)) return "-";
  if (std::abs(s) < 1e-3) return fmt::format("{:.3g} us", s * 1e6);
  if (std::abs(s) < 1) return fmt::format("{:.3g} ms", s * 1e3);
  return s < 60 ? fmt::format("{:.3g} s", s) : format_seconds(s);
}

std::string bytes_text(double bytes) { return std::isfinite(bytes) ? format_bytes(bytes) : "-"; }

std::string percent_text(double share, int decimals) {
  return std::isfinite(share) ? fmt::format("{:.{}f} %", 100 * share, decimals) : "-";
}

Unit seconds_unit(double most) {
  if (most >= 2 * 3600) return {3600, "h"};
  if (most >= 180) return {60, "min"};
  if (most >= 1) return {1, "s"};
  return most >= 1e-3 ? Unit{1e-3, "ms"} : Unit{1e-6, "us"};
}

Unit bytes_unit(double most) {
  if (most >= 0x1p40) return {0x1p40, "TiB"};
  if (most >= 0x1p30) return {0x1p30, "GiB"};
  if (most >= 0x1p20) return {0x1p20, "MiB"};
  return most >= 1024 ? Unit{1024, "KiB"} : Unit{1, "B"};
}

}  // namespace rw
