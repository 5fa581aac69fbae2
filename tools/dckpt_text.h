// How dckpt's subcommands print: aligned columns and names for people, one line of JSON for programs.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "libcore/base/json.h"
#include "libcore/base/printable.h"

namespace rw {

std::string json_line(const Json& j);  // never fails: what is no UTF-8 is replaced
std::string bytes_text(int64_t bytes);
std::string age_text(double seconds);  // "12 s", "5 min", "3 h", "12 d"

// Rows of cells under a heading; prints to stdout with columns as wide as their widest cell.
class TextTable {
 public:
  enum class Align { left, right };
  struct Column {
    std::string heading;
    Align align = Align::left;
  };
  explicit TextTable(std::vector<Column> columns);
  void row(std::vector<std::string> cells);  // as many as columns
  void print(const std::string& indent = "") const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace rw
