#include "libcore/plan/published/published_table.h"

#include <cmath>
#include <cstdlib>
#include <fstream>

#include "libcore/base/error.h"

namespace rw {
namespace {

std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"') quoted = !quoted;
    else if (c == ',' && !quoted) cells.emplace_back();
    else if (c != '\r') cells.back() += c;
  }
  return cells;
}

}  // namespace

const std::string& PublishedCells::text(const std::string& column) const {
  const auto at = cells_.find(column);
  if (at == cells_.end()) fail(ErrorKind::input, "published runs: expected a column {}, found none", column);
  return at->second;
}

double PublishedCells::number(const std::string& column, double otherwise) const {
  const std::string& cell = text(column);
  if (cell.empty()) return otherwise;
  char* end = nullptr;
  const double value = std::strtod(cell.c_str(), &end);
  if (end == cell.c_str() || *end != '\0')
    fail(ErrorKind::input, "published runs, line {}: {}: expected a number, found \"{}\"", line_, column, cell);
  return value;
}

int64_t PublishedCells::whole(const std::string& column, int64_t otherwise) const {
  return std::llround(number(column, static_cast<double>(otherwise)));
}

bool PublishedCells::mentions(const std::string& column, const std::string& what) const {
  return text(column).find(what) != std::string::npos;
}

std::vector<PublishedCells> read_published_table(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string line;
  if (!in || !std::getline(in, line))
    fail(ErrorKind::input, "{}: expected a table of published runs, found no such file or an empty one", file.string());
  const std::vector<std::string> head = split(line);
  std::vector<PublishedCells> rows;
  for (int64_t number = 2; std::getline(in, line); ++number) {
    const std::vector<std::string> cells = split(line);
    if (cells.size() != head.size())
      fail(ErrorKind::input, "{}:{}: expected {} cells, found {}", file.string(), number, head.size(), cells.size());
    std::map<std::string, std::string> row;
    for (size_t i = 0; i < head.size(); ++i) row[head[i]] = cells[i];
    rows.emplace_back(number, std::move(row));
  }
  return rows;
}

}  // namespace rw
