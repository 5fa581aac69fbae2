#include "tools/dckpt_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "libcore/base/units.h"

namespace rw {
namespace {

size_t width(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

}  // namespace

std::string json_line(const Json& j) { return j.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string bytes_text(int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

std::string age_text(double seconds) {
  constexpr std::pair<double, const char*> kUnits[] = {{86400, "d"}, {3600, "h"}, {60, "min"}};
  for (const auto& [unit, name] : kUnits) {
    if (seconds >= 2 * unit) return fmt::format("{:.0f} {}", std::floor(seconds / unit), name);
  }
  return fmt::format("{:.0f} s", seconds);
}

TextTable::TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}

void TextTable::row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

void TextTable::print(const std::string& indent) const {
  std::vector<size_t> widths;
  for (size_t c = 0; c < columns_.size(); ++c) {
    widths.push_back(width(columns_[c].heading));
    for (const auto& cells : rows_) widths[c] = std::max(widths[c], width(cells[c]));
  }
  const auto line = [&](const auto& cell) {
    std::string text = indent;
    for (size_t c = 0; c < columns_.size(); ++c) {
      const std::string space(widths[c] - width(cell(c)), ' ');
      text += (c == 0 ? "" : "  ") + (columns_[c].align == Align::right ? space + cell(c) : cell(c) + space);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    fmt::print("{}\n", text);
  };
  line([&](size_t c) { return columns_[c].heading; });
  for (const auto& cells : rows_) line([&](size_t c) { return cells[c]; });
}

}  // namespace rw
