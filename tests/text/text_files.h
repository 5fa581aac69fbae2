// Where the golden files of the text tests are, and how their lines are read.
#pragma once
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace rw::test {

inline std::filesystem::path text_golden(const std::string& name) {
  const char* source = std::getenv("RANKWRIGHT_SOURCE");
  return std::filesystem::path(source == nullptr ? "." : source) / "tests/golden/text" / name;
}

inline std::vector<std::string> golden_lines(const std::string& name) {
  std::ifstream in(text_golden(name), std::ios::binary);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace rw::test
