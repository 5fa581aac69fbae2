// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU ("Trace Event Format")
#include "libcore/telemetry/chrome_trace.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "libcore/base/check.h"
#include "libcore/base/error.h"

namespace rw {
namespace {

constexpr int kProcess = 1;

// Whole nanoseconds, so that what nests in seconds nests in the file.
int64_t nanoseconds(double seconds) { return std::llround(seconds * 1e9); }

std::string dump(const Json& event) { return event.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace

ChromeTrace::ChromeTrace(const std::filesystem::path& file, const std::string& process)
    : fd_(::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  if (fd_ < 0) fail(ErrorKind::runtime, "{}: cannot be made: {}", file.string(), std::strerror(errno));
  append("[\n" + dump({{"name", "process_name"}, {"ph", "M"}, {"pid", kProcess}, {"args", {{"name", process}}}}));
}

ChromeTrace::~ChromeTrace() {
  append("\n]\n");
  ::close(fd_);
}

bool ChromeTrace::write(const std::vector<Event>& events) {
  std::string text;
  for (const Event& e : events) {
    CHECK(e.end_s >= e.start_s, "%s ends %g s before it starts", e.name.c_str(), e.start_s - e.end_s);
    const int64_t start = nanoseconds(e.start_s), duration = nanoseconds(e.end_s) - start;
    Json event{{"name", e.name},
               {"ph", "X"},
               {"ts", static_cast<double>(start) / 1e3},
               {"dur", static_cast<double>(duration) / 1e3},
               {"pid", kProcess},
               {"tid", e.row}};
    if (e.args != nullptr) event["args"] = *e.args;
    text += ",\n" + dump(event);
  }
  return append(text);
}

bool ChromeTrace::append(const std::string& text) {
  const off_t before = ::lseek(fd_, 0, SEEK_CUR);
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(fd_, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      // Takes back the half that was written.
      if (::ftruncate(fd_, before) == 0) ::lseek(fd_, before, SEEK_SET);
      return false;
    }
    done += static_cast<size_t>(n);
  }
  return true;
}

}  // namespace rw
