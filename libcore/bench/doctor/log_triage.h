// `dbench doctor --logs DIR`: which failure in a heap of raw logs was the first. Asked in the order task -> node ->
// communication library -> kernel log: what the job said, what ended it, what its library saw, what the system knew.
#pragma once
#include <cstdint>
#include <filesystem>

#include "libcore/bench/doctor/doctor.h"

namespace rw {

// A file, or all files below a folder (compressed and binary ones are passed over and noted). Reads each once, up to
// kMaxLogBytes. Error{input}: no such file or folder, or no text in it.
Diagnosis triage_logs(const std::filesystem::path& target);

inline constexpr int64_t kMaxLogBytes = int64_t{1} << 30;  // of a file; the rest is passed over and noted

}  // namespace rw
