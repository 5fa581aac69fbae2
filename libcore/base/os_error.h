// What the operating system refused.
#pragma once
#include <filesystem>
#include <string>

namespace rw {

// "No space left on device", for an errno.
std::string os_error_text(int error);
// Error{runtime}: "PATH: ACTION failed: CAUSE".
[[noreturn]] void os_failed(const std::filesystem::path& path, const std::string& action, int error);

}  // namespace rw
