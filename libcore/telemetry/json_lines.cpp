#include "libcore/telemetry/json_lines.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "libcore/base/error.h"
#include "libcore/base/files.h"

namespace rw {

JsonLines::JsonLines(const std::filesystem::path& file)
    : fd_(::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  if (fd_ < 0) fail(ErrorKind::runtime, "{}: cannot be opened for appending: {}", file.string(), std::strerror(errno));
}
JsonLines::JsonLines(JsonLines&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
JsonLines& JsonLines::operator=(JsonLines&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}
JsonLines::~JsonLines() {
  if (fd_ >= 0) ::close(fd_);
}

bool JsonLines::write(const Json& line) {
  if (fd_ < 0) return true;
  const std::string text = line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(fd_, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

void drop_lines_after(const std::filesystem::path& file, int64_t last_step) {
  if (!std::filesystem::exists(file)) return;
  const std::string text = read_file(file);
  std::string kept;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;
    const std::string_view line(text.data() + begin, end - begin);
    const Json object = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    const bool later = object.is_object() && object.contains("step") && object["step"].is_number_integer() &&
                       object["step"].get<int64_t>() > last_step;
    if (!object.is_discarded() && !later) kept.append(line).push_back('\n');
    begin = end + 1;
  }
  if (kept != text) write_file_atomic(file, kept);
}

}  // namespace rw
