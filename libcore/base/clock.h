// Time: a monotonic clock in seconds and the wall clock as text.
#pragma once
#include <string>

namespace rw {

double now_s();               // monotonic
double process_cpu_s();       // of all threads of this process
std::string utc_timestamp();  // "2026-01-31T12:34:56Z"

}  // namespace rw
