// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU ("Trace Event Format")
#include "libcore/telemetry/chrome_trace.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "libcore/base/check.h"
#include "libcore/base/error.h"

namespace rw {
namespace {

constexpr int64_t kProcess = 1;

// Whole nanoseconds, so that what nests in seconds nests in the file.
int64_t nanoseconds(double seconds) { return std::llround(seconds * 1e9); }

// What a viewer calls a process, or a row of it.
Json process_name(int64_t process, const std::string& name) {
  return {{"name", "process_name"}, {"ph", "M"}, {"pid", process}, {"args", {{"name", name}}}};
}
Json of_row(const char* what, int64_t process, int64_t row, Json args) {
  return {{"name", what}, {"ph", "M"}, {"pid", process}, {"tid", row}, {"args", std::move(args)}};
}

std::string dump(const Json& event) { return event.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace

int64_t free_row(std::vector<double>& ends, double start_s, double end_s) {
  const auto row = std::find_if(ends.begin(), ends.end(), [&](double end) { return end <= start_s; });
  const int64_t index = row - ends.begin();
  if (row == ends.end()) ends.push_back(end_s);
  else *row = end_s;
  return index;
}

ChromeTrace::ChromeTrace(const std::filesystem::path& file, const std::string& process)
    : fd_(::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  if (fd_ < 0) fail(ErrorKind::runtime, "{}: cannot be made: {}", file.string(), std::strerror(errno));
  append("[\n" + dump(process_name(kProcess, process)));
  named_.insert({kProcess, -1});
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
               {"pid", e.process},
               {"tid", e.row}};
    if (e.args != nullptr) event["args"] = *e.args;
    if (!e.process_name.empty() && named_.insert({e.process, -1}).second)
      text += ",\n" + dump(process_name(e.process, e.process_name));
    if (!e.row_name.empty() && named_.insert({e.process, e.row}).second)
      text += ",\n" + dump(of_row("thread_name", e.process, e.row, {{"name", e.row_name}})) + ",\n" +
              dump(of_row("thread_sort_index", e.process, e.row, {{"sort_index", e.row}}));
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
