// Measured scaling points out of CSV and JSON.
#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/base/json.h"
#include "libcore/base/toml_table.h"
#include "libcore/plan/long_run/scaling_fit.h"

namespace rw {
namespace {

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r\"");
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(" \t\r\"") - first + 1);
}

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  for (size_t at = 0; at <= line.size();) {
    const size_t comma = std::min(line.find(',', at), line.size());
    cells.push_back(trimmed(line.substr(at, comma - at)));
    at = comma + 1;
  }
  return cells;
}

// What a message shows of text out of a file: quoted, control characters escaped, long ones cut.
std::string shown(const std::string& text) {
  constexpr size_t kMost = 80;
  return toml_quoted(text.size() > kMost ? text.substr(0, kMost) + "..." : text);
}

void check_range(const char* name, double v, double low, double high, const std::string& where) {
  if (!(v >= low && v <= high))
    fail(ErrorKind::input, "{}: {}: expected {:g} to {:g}, found {:g}", where, name, low, high, v);
}

// Within what a step of any machine takes, so that no sum of squares leaves a double.
ScalingPoint point_of(double n, double step_s, double tokens, double weight, const std::string& where) {
  check_range("n", n, 1, 1e9, where);
  check_range("step_time_s", step_s, 1e-9, 1e9, where);
  check_range("tokens", tokens, 0, 1e15, where);
  check_range("weight", weight, 1e-9, 1e9, where);
  return {.n = n, .seconds = tokens > 0 ? step_s / tokens : step_s, .weight = weight};
}

void check_count(size_t points, const std::string& where) {
  constexpr size_t kMostPoints = 10'000;
  if (points > kMostPoints) fail(ErrorKind::input, "{}: more than {} points; leave some out", where, kMostPoints);
}

std::vector<ScalingPoint> parse_csv(const std::string& text, const std::string& where) {
  std::vector<ScalingPoint> points;
  std::vector<std::string> head;
  int64_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    ++number;
    if (trimmed(line).empty() || trimmed(line)[0] == '#') continue;
    const std::vector<std::string> cells = cells_of(line);
    if (head.empty()) {
      head = cells;
      for (const char* wanted : {"n", "step_time_s"})
        if (std::find(head.begin(), head.end(), wanted) == head.end())
          fail(ErrorKind::input, "{}:{}: expected a head line with the columns n and step_time_s, found {}", where,
               number, shown(trimmed(line)));
      continue;
    }
    if (cells.size() != head.size())
      fail(ErrorKind::input, "{}:{}: expected {} cells as in the head line, found {}", where, number, head.size(),
           cells.size());
    const auto value = [&](const char* name, double otherwise) {
      const auto column = std::find(head.begin(), head.end(), name);
      if (column == head.end()) return otherwise;
      const std::string& cell = cells[static_cast<size_t>(column - head.begin())];
      double v = 0;
      const auto [rest, error] = std::from_chars(cell.data(), cell.data() + cell.size(), v);
      if (error != std::errc() || rest != cell.data() + cell.size())
        fail(ErrorKind::input, "{}:{}: {}: expected a number, found {}", where, number, name, shown(cell));
      return v;
    };
    points.push_back(point_of(value("n", 0), value("step_time_s", 0), value("tokens", 0), value("weight", 1),
                              fmt::format("{}:{}", where, number)));
    check_count(points.size(), where);
  }
  return points;
}

std::vector<ScalingPoint> parse_json_points(const std::string& text, const std::string& where) {
  const Json json = parse_json(text, where);
  const auto named = json.is_object() ? json.find("points") : json.end();
  const Json& list = json.is_object() && named != json.end() ? *named : json;
  if (!list.is_array())
    fail(ErrorKind::input, "{}: expected an array of points, or an object with an array \"points\", found {}", where,
         list.type_name());
  std::vector<ScalingPoint> points;
  for (const Json& item : list) {
    const std::string at = fmt::format("{}: point {}", where, points.size());
    if (!item.is_object()) fail(ErrorKind::input, "{}: expected an object, found {}", at, item.type_name());
    points.push_back(point_of(json_number(item, "n", at), json_number(item, "step_time_s", at),
                              json_number(item, "tokens", at, 0), json_number(item, "weight", at, 1), at));
    check_count(points.size(), where);
  }
  return points;
}

}  // namespace

std::vector<ScalingPoint> parse_scaling_points(const std::string& file_text, const std::string& where) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";  // of UTF-8, as spreadsheets put it first
  const std::string text = file_text.starts_with(kMark) ? file_text.substr(kMark.size()) : file_text;
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && (text[first] == '{' || text[first] == '[')) return parse_json_points(text, where);
  return parse_csv(text, where);
}

}  // namespace rw
