#include "libcore/base/error.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

#include "libcore/base/check.h"

namespace rw {

int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::usage:
    case ErrorKind::input: return 2;
    case ErrorKind::runtime: return 1;
    case ErrorKind::verdict: return 3;
    case ErrorKind::interrupted: return 75;
  }
  return 1;
}

void check_failed(const char* file, int line, const char* expr, const char* format, ...) {
  char message[1024];
  va_list args;
  va_start(args, format);
  std::vsnprintf(message, sizeof message, format, args);
  va_end(args);
  throw CheckFailed(fmt::format("internal check failed at {}:{}: {} {}", file, line, expr, message));
}

namespace {
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}
}  // namespace

std::string nearest(const std::string& found, const std::vector<std::string>& known) {
  std::string best;
  size_t best_distance = std::max<size_t>(2, found.size() / 3) + 1;
  for (const std::string& name : known) {
    const size_t distance = edit_distance(found, name);
    if (distance < best_distance) best = name, best_distance = distance;
  }
  return best;
}

}  // namespace rw
