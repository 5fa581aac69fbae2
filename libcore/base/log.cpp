#include "libcore/base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>

namespace rw {
namespace {

spdlog::logger& sink() {
  static const std::shared_ptr<spdlog::logger> logger = [] {
    auto made = std::make_shared<spdlog::logger>("rw", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made->set_pattern("%^%v%$");
    made->flush_on(spdlog::level::trace);
    return made;
  }();
  return *logger;
}

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::debug: return spdlog::level::debug;
    case LogLevel::info: return spdlog::level::info;
    case LogLevel::warning: return spdlog::level::warn;
    case LogLevel::error: return spdlog::level::err;
  }
  return spdlog::level::info;
}

}  // namespace

void set_log_rank(int rank, int size) {
  if (rank == 0 || size == 1) return;
  sink().set_pattern("%^[rank " + std::to_string(rank) + "] %v%$");
  sink().set_level(spdlog::level::warn);
}

void set_log_level(LogLevel level) { sink().set_level(spdlog_level(level)); }

void log_line(LogLevel level, const std::string& line) {
  const char* prefix = level == LogLevel::warning ? "warning: " : level == LogLevel::error ? "error: " : "";
  sink().log(spdlog_level(level), "{}{}", prefix, line);
}

}  // namespace rw
