// The log: plain lines on stderr, through spdlog. In an MPI job rank 0 logs at info, the others at warnings; each line
// of a rank above 0 carries its rank.
#pragma once
#include <fmt/core.h>

#include <string>
#include <utility>

namespace rw {

enum class LogLevel { debug, info, warning, error };

void set_log_rank(int rank, int size);
void set_log_level(LogLevel level);
void log_line(LogLevel level, const std::string& line);

template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::info, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::warning, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::error, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace rw
