// What a line of a log says beside its message: when, which rank, which host.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace rw {

struct LogTime {
  // uptime: seconds since that machine's start, which say nothing beside another file's.
  enum class Clock : uint8_t { none, wall, uptime } clock = Clock::none;
  double s = 0;  // wall: since 1970 as the line spells it (a zone that it names taken off)
};
// ISO 8601 ("2026-11-30T11:00:00.5Z", "2026-11-30 11:00:00,123"), syslog ("Nov 30 11:00:00"), dmesg ("[12345.678]",
// "[Mon Nov 30 11:00:00 2026]") and glog ("E1130 11:00:00.5"), at the line's front, in brackets or behind a rank's
// prefix, or as a JSON line's "time". `year`, `month`: of the file's last change: a date without a year is not after
// it.
LogTime log_time(std::string_view line, int year, int month);

// "[1,3]<stderr>:" (mpirun --tag-output), "[rank 3] ", "[rank3]: ", "rank 3", "process rank 3", "rank-3.log"; -1: none.
int64_t log_rank(std::string_view line, std::string_view file_name);
// "(host n2)", "on node n2", syslog's host; else what the file is named by: "n2.log", "dmesg-n2.txt"; "": none.
std::string log_host(std::string_view line, std::string_view file_name);

}  // namespace rw
