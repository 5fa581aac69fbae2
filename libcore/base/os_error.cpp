#include "libcore/base/os_error.h"

#include <system_error>

#include "libcore/base/error.h"

namespace rw {

std::string os_error_text(int error) { return std::error_code(error, std::generic_category()).message(); }

void os_failed(const std::filesystem::path& path, const std::string& action, int error) {
  fail(ErrorKind::runtime, "{}: {} failed: {}", path.string(), action, os_error_text(error));
}

}  // namespace rw
