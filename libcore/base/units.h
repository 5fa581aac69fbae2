// Sizes and times for people: "64Ki" <-> 65536, 12.3 MiB, 1:02:03.
#pragma once
#include <cstdint>
#include <string>

namespace rw {

// Digits with an optional suffix K, M, G, T, Ki, Mi, Gi, Ti (all binary) and an optional B; "_" between digits is
// skipped. Throws Error{usage} naming `what`.
int64_t parse_size(const std::string& text, const std::string& what);
std::string format_bytes(double bytes);  // "12.3 MiB"
std::string format_count(double n);      // "124.4M"
std::string format_seconds(double s);    // "3.2 s", "2:05", "1:02:03"

// a / b where b divides a; Error{usage} says both numbers otherwise.
int64_t divide_exact(int64_t a, int64_t b, const char* a_name, const char* b_name);

}  // namespace rw
