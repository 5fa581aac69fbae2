#include "libcore/bench/record/json_line_file.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"

namespace rw {

namespace fs = std::filesystem;

int64_t for_each_json_line(const fs::path& file, const std::function<void(const Json&, const std::string&)>& use) {
  std::error_code unknown;  // a loop of links is there, but is no file
  if (fs::symlink_status(file, unknown).type() == fs::file_type::not_found) return 0;
  if (!fs::is_regular_file(file, unknown))
    fail(ErrorKind::input, "{}: expected a regular file of JSON lines, found {}", file.string(),
         unknown ? unknown.message() : "something else");
  std::ifstream in(file);
  if (!in) fail(ErrorKind::input, "{}: it cannot be read", file.string());
  int64_t torn = 0;
  for (std::string line; std::getline(in, line);) {
    if (line.empty()) continue;
    const Json parsed = Json::parse(line, nullptr, false);
    if (parsed.is_object()) use(parsed, line);
    else ++torn;
  }
  return torn;
}

}  // namespace rw
