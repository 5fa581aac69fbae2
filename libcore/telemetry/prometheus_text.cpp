#include "libcore/telemetry/prometheus_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "libcore/base/error.h"

namespace rw {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool is_blank(char c) { return c == ' ' || c == '\t'; }
bool starts_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == ':'; }
bool continues_name(char c) { return starts_name(c) || (c >= '0' && c <= '9'); }

// "1.5", "+Inf", "NaN", as Go's ParseFloat takes them.
std::optional<double> number_of(std::string_view text) {
  if (text.starts_with('+')) {
    text.remove_prefix(1);
    if (text.starts_with('+') || text.starts_with('-')) return {};
  }
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

// One line that is no comment.
class SampleLine {
 public:
  SampleLine(std::string_view line, int64_t number, const std::string& where)
      : line_(line), number_(number), where_(where) {}

  MetricSample read() {
    MetricSample sample;
    sample.name = name("a metric's name");
    skip_blanks();
    if (at('{')) read_labels(sample);
    skip_blanks();
    const std::string_view value = word();
    const std::optional<double> number = number_of(value);
    if (!number) expected("a number after the name", value.empty() ? "the line's end" : value);
    sample.value = *number;
    skip_blanks();
    if (at_ != line_.size() && !at('#')) {  // a time in milliseconds; '#': an OpenMetrics exemplar, not read
      const std::string_view time = word();
      if (!number_of(time)) expected("a time after the value", time);
      skip_blanks();
      if (at_ != line_.size() && !at('#')) expected("the line's end", line_.substr(at_));
    }
    return sample;
  }

 private:
  [[noreturn]] void expected(std::string_view what, std::string_view found) const {
    fail(ErrorKind::input, "{}: line {}: expected {}, found \"{}\"", where_, number_, what, found.substr(0, 80));
  }
  bool at(char c) const { return at_ < line_.size() && line_[at_] == c; }
  std::string_view rest() const { return at_ < line_.size() ? line_.substr(at_) : "the line's end"; }
  void skip_blanks() {
    while (at_ < line_.size() && is_blank(line_[at_])) ++at_;
  }
  std::string_view word() {
    const size_t begin = at_;
    while (at_ < line_.size() && !is_blank(line_[at_])) ++at_;
    return line_.substr(begin, at_ - begin);
  }
  std::string name(std::string_view what) {
    const size_t begin = at_;
    if (at_ == line_.size() || !starts_name(line_[at_])) expected(what, rest());
    while (at_ < line_.size() && continues_name(line_[at_])) ++at_;
    return std::string(line_.substr(begin, at_ - begin));
  }
  std::string quoted() {
    std::string out;
    if (!at('"')) expected("a label's value in quotes", rest());
    for (++at_; at_ < line_.size() && line_[at_] != '"'; ++at_) {
      if (line_[at_] == '\\' && at_ + 1 < line_.size()) {
        const char c = line_[++at_];
        if (c != 'n' && c != '\\' && c != '"') out += '\\';  // an unknown escape stands for itself
        out += c == 'n' ? '\n' : c;
      } else {
        out += line_[at_];
      }
    }
    if (!at('"')) expected("the quote that ends a label's value", "the line's end");
    ++at_;
    return out;
  }
  void read_labels(MetricSample& sample) {
    ++at_;
    for (skip_blanks(); !at('}'); skip_blanks()) {
      std::string label = name("a label's name or '}'");
      skip_blanks();
      if (!at('=')) expected("'=' after a label's name", rest());
      ++at_;
      skip_blanks();
      if (!sample.labels.emplace(label, quoted()).second) expected("each label once", label);
      skip_blanks();
      if (at(',')) ++at_;
      else if (!at('}')) expected("',' or '}' after a label's value", rest());
    }
    ++at_;
  }

  std::string_view line_;
  int64_t number_;
  const std::string& where_;
  size_t at_ = 0;
};

}  // namespace

MetricsText MetricsText::parse(std::string_view text, const std::string& where) {
  MetricsText all;
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    while (!line.empty() && is_blank(line.front())) line.remove_prefix(1);
    if (line.empty() || line.front() == '#') continue;
    all.samples_.push_back(SampleLine(line, number, where).read());
  }
  return all;
}

double MetricsText::sum(std::string_view name) const {
  double total = 0;
  bool found = false;
  for (const MetricSample& s : samples_)
    if (s.name == name) total += s.value, found = true;
  return found ? total : kNan;
}

double MetricsText::value(std::string_view name, std::string_view label, std::string_view label_value) const {
  double total = 0;
  bool found = false;
  for (const MetricSample& s : samples_) {
    if (s.name != name) continue;
    const auto it = s.labels.find(std::string(label));
    if (it != s.labels.end() && it->second == label_value) total += s.value, found = true;
  }
  return found ? total : kNan;
}

bool MetricsText::has(std::string_view name) const {
  return std::any_of(samples_.begin(), samples_.end(), [&](const MetricSample& s) { return s.name == name; });
}

double MetricsText::histogram_quantile(std::string_view name, double share) const {
  const std::string bucket = std::string(name) + "_bucket";
  std::map<double, double> up_to;  // upper bound -> observations no larger, of all label sets
  for (const MetricSample& s : samples_) {
    if (s.name != bucket) continue;
    const auto le = s.labels.find("le");
    if (le == s.labels.end()) continue;
    const std::optional<double> bound = number_of(le->second);
    if (bound && !std::isnan(*bound)) up_to[*bound] += s.value;
  }
  if (up_to.size() < 2 || up_to.rbegin()->first != kInfinity || std::isnan(share)) return kNan;
  double most = 0;  // scrapes are not atomic: a later bucket may have been read a little earlier
  for (auto& [bound, count] : up_to) count = most = std::max(most, count);
  if (!(most > 0)) return kNan;
  const double rank = std::clamp(share, 0.0, 1.0) * most;
  double lower = 0, below = 0;
  bool first = true;
  for (const auto& [bound, count] : up_to) {
    if (count >= rank && (count > below || first)) {
      if (bound == kInfinity) return lower;          // beyond the last finite bound: nothing more is known
      if (first && bound <= 0) return bound;         // no lower end to interpolate from
      if (count == below) return first ? 0 : lower;  // an empty first bucket at rank 0
      return lower + (bound - lower) * (rank - below) / (count - below);
    }
    lower = bound;
    below = count;
    first = false;
  }
  return kNan;
}

}  // namespace rw
