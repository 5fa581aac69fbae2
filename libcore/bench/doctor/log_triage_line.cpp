#include "libcore/bench/doctor/log_triage_line.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <optional>

namespace rw {
namespace {

constexpr std::array<std::string_view, 12> kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                      "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
constexpr std::array<std::string_view, 7> kDays = {"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.'; }

// Takes from the front of a text; a take that does not fit leaves it as it was.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}
  std::string_view rest() const { return text_; }
  bool literal(std::string_view expected) {
    if (!text_.starts_with(expected)) return false;
    text_.remove_prefix(expected.size());
    return true;
  }
  bool number(int least_digits, int most_digits, int& value) {
    int n = 0, v = 0;
    while (n < most_digits && n < static_cast<int>(text_.size()) && is_digit(text_[static_cast<size_t>(n)]))
      v = 10 * v + (text_[static_cast<size_t>(n++)] - '0');
    if (n < least_digits) return false;
    value = v;
    text_.remove_prefix(static_cast<size_t>(n));
    return true;
  }
  void skip(char c) {
    while (!text_.empty() && text_.front() == c) text_.remove_prefix(1);
  }
  template <size_t N>
  bool one_of(const std::array<std::string_view, N>& names, int& index) {
    for (size_t i = 0; i < N; ++i)
      if (literal(names[i])) {
        index = static_cast<int>(i);
        return true;
      }
    return false;
  }
  // ".123" or ",123"
  double fraction() {
    if (text_.empty() || (text_[0] != '.' && text_[0] != ',')) return 0;
    size_t at = 1;
    double unit = 0.1, value = 0;
    for (; at < text_.size() && is_digit(text_[at]); ++at, unit /= 10) value += unit * (text_[at] - '0');
    if (at > 1) text_.remove_prefix(at);
    return value;
  }

 private:
  std::string_view text_;
};

struct Stamp {
  int year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0;
  double fraction = 0;
  int zone_minutes = 0;
};

std::optional<LogTime> wall(const Stamp& t) {
  const std::chrono::year_month_day date{std::chrono::year(t.year), std::chrono::month(static_cast<unsigned>(t.month)),
                                         std::chrono::day(static_cast<unsigned>(t.day))};
  if (!date.ok() || t.hour > 23 || t.minute > 59 || t.second > 60) return std::nullopt;
  const auto days = std::chrono::sys_days(date).time_since_epoch().count();
  const double s = 86400.0 * static_cast<double>(days) + 3600.0 * t.hour + 60.0 * (t.minute - t.zone_minutes) +
                   t.second + t.fraction;
  return LogTime{.clock = LogTime::Clock::wall, .s = s};
}

bool clock_of(Cursor& c, Stamp& t) {
  if (!c.number(1, 2, t.hour) || !c.literal(":") || !c.number(2, 2, t.minute) || !c.literal(":") ||
      !c.number(2, 2, t.second))
    return false;
  t.fraction = c.fraction();
  return true;
}

void zone_of(Cursor& c, Stamp& t) {
  Cursor z = c;
  z.skip(' ');
  const int sign = z.literal("+") ? 1 : z.literal("-") ? -1 : 0;
  int hours = 0, minutes = 0;
  if (sign == 0 || !z.number(2, 2, hours)) return;
  z.literal(":");
  if (z.number(2, 2, minutes)) t.zone_minutes = sign * (60 * hours + minutes);
}

std::optional<LogTime> iso(Cursor c) {
  Stamp t;
  const bool begins = c.number(4, 4, t.year) && (c.literal("-") || c.literal("/")) && c.number(2, 2, t.month) &&
                      (c.literal("-") || c.literal("/")) && c.number(2, 2, t.day);
  if (!begins || !(c.literal("T") || c.literal(" ")) || !clock_of(c, t)) return std::nullopt;
  zone_of(c, t);
  return wall(t);
}

int year_before(int month, int file_year, int file_month) { return month > file_month ? file_year - 1 : file_year; }

std::optional<LogTime> syslog(Cursor c, int file_year, int file_month) {
  Stamp t;
  if (!c.one_of(kMonths, t.month)) return std::nullopt;
  ++t.month;
  c.skip(' ');
  if (!c.number(1, 2, t.day) || !c.literal(" ") || !clock_of(c, t)) return std::nullopt;
  t.year = year_before(t.month, file_year, file_month);
  return wall(t);
}

// dmesg -T: "Mon Nov 30 11:00:00 2026"
std::optional<LogTime> long_date(Cursor c) {
  Stamp t;
  int day = 0;
  if (!c.one_of(kDays, day) || !c.literal(" ") || !c.one_of(kMonths, t.month)) return std::nullopt;
  ++t.month;
  c.skip(' ');
  if (!c.number(1, 2, t.day) || !c.literal(" ") || !clock_of(c, t) || !c.literal(" ") || !c.number(4, 4, t.year))
    return std::nullopt;
  return wall(t);
}

std::optional<LogTime> glog(Cursor c, int file_year, int file_month) {
  Stamp t;
  if (!(c.literal("E") || c.literal("W") || c.literal("I") || c.literal("F"))) return std::nullopt;
  if (!c.number(2, 2, t.month) || !c.number(2, 2, t.day) || !c.literal(" ") || !clock_of(c, t)) return std::nullopt;
  t.year = year_before(t.month, file_year, file_month);
  return wall(t);
}

std::optional<LogTime> uptime(Cursor c) {
  c.skip(' ');
  int seconds = 0;
  if (!c.number(1, 9, seconds) || !c.rest().starts_with('.')) return std::nullopt;
  const double s = seconds + c.fraction();
  if (!c.literal("]")) return std::nullopt;
  return LogTime{.clock = LogTime::Clock::uptime, .s = s};
}

// Behind "[1,3]<stderr>:", "[rank3]: ", "[rank 3] ".
std::string_view behind_rank(std::string_view line) {
  if (!line.starts_with('[')) return line;
  const size_t close = line.find(']');
  if (close == std::string_view::npos || close > 24) return line;
  const std::string_view inside = line.substr(1, close - 1);
  const bool tagged = std::all_of(inside.begin(), inside.end(), [](char c) { return is_digit(c) || c == ','; });
  if (!inside.starts_with("rank") && !(tagged && inside.find(',') != std::string_view::npos)) return line;
  line.remove_prefix(close + 1);
  for (const std::string_view stream : {"<stderr>", "<stdout>"})
    if (line.starts_with(stream)) line.remove_prefix(stream.size());
  while (!line.empty() && (line.front() == ':' || line.front() == ' ')) line.remove_prefix(1);
  return line;
}

int64_t number_behind(std::string_view line, std::string_view word) {
  for (size_t at = line.find(word); at != std::string_view::npos; at = line.find(word, at + 1)) {
    if (at > 0 && std::isalpha(static_cast<unsigned char>(line[at - 1])) != 0) continue;
    Cursor c(line.substr(at + word.size()));
    if (!c.literal(" ") && !c.literal("-")) c.literal("=");
    int rank = 0;
    if (c.number(1, 7, rank)) return rank;
  }
  return -1;
}

std::string word_at(std::string_view text) {
  size_t n = 0;
  while (n < text.size() && is_word(text[n])) ++n;
  while (n > 0 && text[n - 1] == '.') --n;
  return std::string(text.substr(0, n));
}

std::string host_in_name(std::string_view name) {
  constexpr std::array<std::string_view, 10> kKinds = {"dmesg",  "syslog", "messages", "kern", "kernel",
                                                       "stderr", "stdout", "mpirun",   "log",  "journal"};
  name = name.substr(0, name.find('.'));
  for (const std::string_view kind : kKinds)
    if (name.starts_with(kind) && name.size() > kind.size() + 1 &&
        (name[kind.size()] == '-' || name[kind.size()] == '_'))
      return std::string(name.substr(kind.size() + 1));
  for (const std::string_view node : {"node", "host", "worker", "gpu"})
    if (name.starts_with(node) && name.find_first_of("0123456789") != std::string_view::npos) return std::string(name);
  return "";
}

}  // namespace

LogTime log_time(std::string_view line, int year, int month) {
  line = behind_rank(line);
  if (line.starts_with('{')) {
    const size_t at = line.find("\"time\"");
    if (at == std::string_view::npos) return {};
    const size_t quote = line.find('"', at + 6);
    return quote == std::string_view::npos ? LogTime() : iso(Cursor(line.substr(quote + 1))).value_or(LogTime());
  }
  const bool bracket = line.starts_with('[');
  if (bracket) line.remove_prefix(1);
  const Cursor c(line);
  if (const auto t = iso(c)) return *t;
  if (const auto t = syslog(c, year, month)) return *t;
  if (const auto t = glog(c, year, month)) return *t;
  if (!bracket) return {};
  if (const auto t = long_date(c)) return *t;
  return uptime(c).value_or(LogTime());
}

int64_t log_rank(std::string_view line, std::string_view file_name) {
  if (line.starts_with('[')) {
    Cursor c(line.substr(1));
    int job = 0, rank = 0;
    if (c.number(1, 7, job) && c.literal(",") && c.number(1, 7, rank) && c.literal("]<std")) return rank;
  }
  if (const int64_t rank = number_behind(line, "rank"); rank >= 0) return rank;
  return number_behind(file_name, "rank");
}

std::string log_host(std::string_view line, std::string_view file_name) {
  for (const std::string_view before : {"(host ", "on node ", "on host ", "Hostname: ", "hostname: "})
    if (const size_t at = line.find(before); at != std::string_view::npos)
      if (std::string host = word_at(line.substr(at + before.size())); !host.empty()) return host;
  // "Nov 30 11:00:00 HOST ..."
  Cursor c(line);
  Stamp t;
  if (c.one_of(kMonths, t.month)) {
    c.skip(' ');
    if (c.number(1, 2, t.day) && c.literal(" ") && clock_of(c, t) && c.literal(" ")) return word_at(c.rest());
  }
  // "HOST:4711:4750 [0] NCCL WARN ..."
  if (line.find("NCCL") != std::string_view::npos) {
    std::string host = word_at(behind_rank(line));
    const std::string_view rest = behind_rank(line).substr(host.size());
    if (!host.empty() && rest.size() > 1 && rest[0] == ':' && is_digit(rest[1])) return host;
  }
  return host_in_name(file_name);
}

}  // namespace rw
