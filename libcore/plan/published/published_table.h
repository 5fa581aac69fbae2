// The table of published training runs (tests/golden/published/training.csv): one row a run, as its source gives it.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace rw {

class PublishedCells {
 public:
  PublishedCells(int64_t line, std::map<std::string, std::string> cells) : line_(line), cells_(std::move(cells)) {}
  int64_t line() const { return line_; }  // in the file
  const std::string& text(const std::string& column) const;
  bool has(const std::string& column) const { return !text(column).empty(); }
  double number(const std::string& column, double otherwise) const;  // otherwise when the cell is empty
  int64_t whole(const std::string& column, int64_t otherwise) const;
  bool mentions(const std::string& column, const std::string& what) const;

 private:
  int64_t line_;
  std::map<std::string, std::string> cells_;
};

// A CSV file with a head line; cells in quotes may hold commas. Error{input} names file and line.
std::vector<PublishedCells> read_published_table(const std::filesystem::path& file);

}  // namespace rw
