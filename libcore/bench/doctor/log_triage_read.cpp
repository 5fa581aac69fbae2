#include "libcore/bench/doctor/log_triage_read.h"

#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>

#include "libcore/base/check.h"
#include "libcore/base/error.h"
#include "libcore/base/units.h"
#include "libcore/bench/doctor/log_triage_scan.h"

namespace rw {
namespace {

namespace fs = std::filesystem;

constexpr size_t kChunk = size_t{1} << 20;
constexpr size_t kLongestLine = 4096;  // what a line has beyond is not looked at
constexpr size_t kShown = 300;
constexpr size_t kNamed = 64;
constexpr size_t kLooksBinary = 4096;
constexpr int64_t kTracebackLines = 400;

bool holds(const std::string& lower, const LogForm& form) {
  const auto has = [&](const char* text) { return lower.find(text) != std::string::npos; };
  return std::all_of(form.also.begin(), form.also.end(), has) &&
         std::none_of(form.without.begin(), form.without.end(), has);
}

// A terminal's colours and other control bytes must not reach the reader's terminal.
std::string shown(std::string_view line) {
  std::string out;
  for (const char c : line.substr(0, kShown)) out += static_cast<unsigned char>(c) < 32 && c != '\t' ? '?' : c;
  if (line.size() > kShown) out += "...";
  return out;
}

// "dtrain: error: ..." and, of a rank that is not alone, "[rank 3] error: ...".
bool is_tool_error(const std::string& lower) {
  if (lower.find("/health tells of the failure") != std::string::npos) return false;  // what came is told before it
  for (const char* tool : {"dtrain: error: ", "dserve: error: ", "dplan: error: ", "dckpt: error: ", "dbench: error: "})
    if (lower.find(tool) != std::string::npos) return true;
  return lower.starts_with("error: ") || (lower.starts_with("[rank ") && lower.find("] error: ") != std::string::npos);
}

// "ValueError: ..." at the end of a traceback, behind whatever the launcher puts before each line.
bool is_exception(std::string_view line) {
  if (line.starts_with('[')) {
    const size_t close = line.find("]:");
    if (close == std::string_view::npos) return false;
    line.remove_prefix(close + 2);
    if (line.starts_with(' ')) line.remove_prefix(1);
  }
  if (line.empty() || std::isalpha(static_cast<unsigned char>(line.front())) == 0) return false;
  const std::string_view name = line.substr(0, line.find(':'));
  return std::all_of(name.begin(), name.end(),
                     [](unsigned char c) { return std::isalnum(c) != 0 || c == '.' || c == '_'; });
}

class Reader {
 public:
  Reader(const fs::path& target, int64_t max_bytes)
      : base_(fs::is_directory(target) ? target : target.parent_path()), max_bytes_(max_bytes), literals_(all_finds()) {
    for (const LogRule& rule : log_rules()) {
      if (std::string_view(rule.id) == kTracebackRule) traceback_ = &rule;
      if (std::string_view(rule.id) == kToolErrorRule) tool_error_ = &rule;
    }
    CHECK(traceback_ != nullptr && tool_error_ != nullptr, "the rules of exceptions and tool errors are missing");
  }

  void read(const fs::path& file) {
    struct stat info {};
    if (::stat(file.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return;
    file_ = file.lexically_relative(base_).string();
    if (base_.empty()) file_ = file.string();
    name_ = file.filename().string();
    tm date{};
    ::gmtime_r(&info.st_mtime, &date);
    year_ = date.tm_year + 1900;
    month_ = date.tm_mon + 1;
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> in(std::fopen(file.c_str(), "rb"), &std::fclose);
    if (in == nullptr) {
      out.notes.push_back(fmt::format("{}: cannot be opened: {}", file_, std::strerror(errno)));
      return;
    }
    line_ = in_traceback_ = 0;
    carried_.clear();
    int64_t taken = 0;
    for (size_t n = 0; taken < max_bytes_ && (n = std::fread(chunk_.data(), 1, chunk_.size(), in.get())) > 0;) {
      if (taken == 0 && std::memchr(chunk_.data(), 0, std::min(n, kLooksBinary)) != nullptr) {
        out.notes.push_back(fmt::format("{}: passed over: it is not text", file_));
        return;
      }
      n = static_cast<size_t>(std::min<int64_t>(static_cast<int64_t>(n), max_bytes_ - taken));
      taken += static_cast<int64_t>(n);
      lines_of(std::string_view(chunk_.data(), n));
    }
    if (!carried_.empty()) one_line(carried_);
    if (taken < info.st_size)
      out.notes.push_back(fmt::format("{}: only its first {} of {} were read", file_,
                                      format_bytes(static_cast<double>(taken)),
                                      format_bytes(static_cast<double>(info.st_size))));
    ++out.files;
    out.bytes += taken;
  }

  LogReading out;

 private:
  struct Where {
    const LogRule* rule;
    const LogForm* form;
  };
  std::vector<std::string_view> all_finds() {
    std::vector<std::string_view> finds;
    for (const LogRule& rule : log_rules())
      for (const LogForm& form : rule.forms) {
        where_.push_back({&rule, &form});
        finds.emplace_back(form.find);
      }
    return finds;
  }

  void lines_of(std::string_view text) {
    while (!text.empty()) {
      const size_t end = text.find('\n');
      if (end == std::string_view::npos) {
        carried_.append(text.substr(0, kLongestLine - std::min(kLongestLine, carried_.size())));
        return;
      }
      if (carried_.empty()) {
        one_line(text.substr(0, end));
      } else {
        carried_.append(text.substr(0, std::min(end, kLongestLine)));
        one_line(carried_);
        carried_.clear();
      }
      text.remove_prefix(end + 1);
    }
  }

  void one_line(std::string_view line) {
    ++line_;
    ++out.lines;
    line = line.substr(0, kLongestLine);
    if (line.ends_with('\r')) line.remove_suffix(1);
    found_.clear();
    literals_.scan(line, [&](int32_t i) { found_.push_back(i); });
    const bool may_be_tool = line.find("error: ") != std::string_view::npos;
    if (found_.empty() && !may_be_tool && in_traceback_ == 0 && line.find("Traceback (") == std::string_view::npos)
      return;
    lower_.assign(line);
    for (char& c : lower_) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const LogRule* last = nullptr;
    for (const int32_t i : found_) {
      const Where& w = where_[static_cast<size_t>(i)];
      if (!holds(lower_, *w.form)) continue;
      if (std::find(fits_.begin(), fits_.end(), w.rule) == fits_.end()) fits_.push_back(last = w.rule);
    }
    // A line is told once, by what it says most exactly.
    if (fits_.empty() && may_be_tool && is_tool_error(lower_)) fits_.push_back(tool_error_);
    follow_traceback(line);
    for (const LogRule* rule : fits_) hit(*rule, line);
    fits_.clear();
  }

  void follow_traceback(std::string_view line) {
    if (lower_.find("traceback (most recent call last)") != std::string::npos) {
      in_traceback_ = 1;
      return;
    }
    if (in_traceback_ == 0) return;
    if (++in_traceback_ > kTracebackLines) in_traceback_ = 0;
    if (!is_exception(line)) return;
    in_traceback_ = 0;
    // Somebody's Ctrl-C, or an exit that was meant.
    const bool meant =
        lower_.find("keyboardinterrupt") != std::string::npos || lower_.find("systemexit") != std::string::npos;
    if (fits_.empty() && !meant) fits_.push_back(traceback_);
  }

  void hit(const LogRule& rule, std::string_view line) {
    auto at = std::find_if(out.hits.begin(), out.hits.end(), [&](const LogHits& h) { return h.rule == &rule; });
    if (at == out.hits.end()) {
      out.hits.emplace_back();
      at = out.hits.end() - 1;
      at->rule = &rule;
    }
    const LogTime time = log_time(line, year_, month_);
    const bool is_wall = time.clock == LogTime::Clock::wall;
    const bool was_wall = at->first.time.clock == LogTime::Clock::wall;
    const int64_t rank = log_rank(line, name_);
    const std::string host = log_host(line, name_);
    if (rank >= 0 && at->ranks.size() < kNamed) at->ranks.insert(rank);
    if (!host.empty() && at->hosts.size() < kNamed) at->hosts.insert(host);
    if (is_wall) at->last_s = was_wall ? std::max(at->last_s, time.s) : time.s;
    ++at->count;
    if (at->count > 1 && !(is_wall && (!was_wall || time.s < at->first.time.s))) return;
    at->first = {.time = time, .file = file_, .line = line_, .text = shown(line), .rank = rank, .host = host};
  }

  const fs::path base_;
  const int64_t max_bytes_;
  std::vector<Where> where_;  // before literals_, whose making fills it
  const LiteralSet literals_;
  const LogRule *traceback_ = nullptr, *tool_error_ = nullptr;
  std::string file_, name_, carried_, lower_;
  int year_ = 0, month_ = 0;
  int64_t line_ = 0, in_traceback_ = 0;  // lines since a traceback began; 0: outside
  std::vector<int32_t> found_;
  std::vector<const LogRule*> fits_;
  std::vector<char> chunk_ = std::vector<char>(kChunk);
};

}  // namespace

LogReading read_logs(const fs::path& target, int64_t max_bytes) {
  std::error_code error;
  std::vector<fs::path> files;
  if (fs::is_regular_file(target, error)) {
    files.push_back(target);
  } else if (fs::is_directory(target, error)) {
    for (fs::recursive_directory_iterator at(target, fs::directory_options::skip_permission_denied, error), end;
         !error && at != end; at.increment(error))
      if (at->is_regular_file(error)) files.push_back(at->path());
    std::sort(files.begin(), files.end());
  } else {
    fail(ErrorKind::input, "{}: expected a log file or a folder of them, found no such file or folder",
         target.string());
  }
  Reader reader(target, max_bytes);
  if (error) reader.out.notes.push_back(fmt::format("{}: {}", target.string(), error.message()));
  for (const fs::path& file : files) reader.read(file);
  if (reader.out.lines == 0)
    fail(ErrorKind::input, "{}: expected logs, found no text in {} files", target.string(), files.size());
  return std::move(reader.out);
}

}  // namespace rw
