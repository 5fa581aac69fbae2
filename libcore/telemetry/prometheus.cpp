// https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format
#include "libcore/telemetry/prometheus.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "libcore/base/check.h"

namespace rw {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

bool is_name(std::string_view name, bool colons) {
  if (name.empty() || (name[0] >= '0' && name[0] <= '9')) return false;
  return std::all_of(name.begin(), name.end(),
                     [&](char c) { return is_letter(c) || (c >= '0' && c <= '9') || (colons && c == ':'); });
}

// The length of the UTF-8 sequence at the front, 0 when it is none (Unicode 15, table 3-7).
size_t utf8_length(std::string_view text) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(i < text.size() ? text[i] : 0); };
  const auto tail = [&](size_t i) { return (at(i) & 0xC0) == 0x80; };
  const unsigned char first = at(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return tail(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const bool second = tail(1) && !(first == 0xE0 && at(1) < 0xA0) && !(first == 0xED && at(1) > 0x9F);
    return second && tail(2) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const bool second = tail(1) && !(first == 0xF0 && at(1) < 0x90) && !(first == 0xF4 && at(1) > 0x8F);
    return second && tail(2) && tail(3) ? 4 : 0;
  }
  return 0;
}

// A label's value may be a model's name or what a client sent: broken UTF-8 in it would lose the whole scrape.
void append_escaped(std::string& out, std::string_view text, bool quotes) {
  for (size_t i = 0; i < text.size();) {
    const size_t n = utf8_length(text.substr(i));
    if (n == 0) {
      out += "\xEF\xBF\xBD";
      ++i;
      continue;
    }
    if (text[i] == '\\') out += "\\\\";
    else if (text[i] == '\n') out += "\\n";
    else if (text[i] == '"' && quotes) out += "\\\"";
    else out += text.substr(i, n);
    i += n;
  }
}

void append_number(std::string& out, double value) {
  if (std::isnan(value)) {
    out += "NaN";
  } else if (std::isinf(value)) {
    out += value > 0 ? "+Inf" : "-Inf";
  } else if (std::abs(value) < 1e15 && value == std::trunc(value)) {
    out += std::to_string(static_cast<int64_t>(value));  // 100000, not 1e+05: shell scripts read it too
  } else {
    std::array<char, 32> digits;
    out.append(digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr);
  }
}

void append_labels(std::string& out, const MetricLabels& labels) {
  for (const auto& [name, value] : labels) {
    if (!out.empty()) out.push_back(',');
    out += name + "=\"";
    append_escaped(out, value, true);
    out.push_back('"');
  }
}

}  // namespace

void MetricCounter::add(double amount) {
  CHECK(amount >= 0, "a counter goes up only, not by %g", amount);
  value_.fetch_add(amount, std::memory_order_relaxed);
}

MetricHistogram::MetricHistogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {
  CHECK(!bounds_.empty(), "a histogram without buckets");
  for (size_t i = 0; i < bounds_.size(); ++i)
    CHECK(std::isfinite(bounds_[i]) && (i == 0 || bounds_[i] > bounds_[i - 1]), "bound %zu is %g", i, bounds_[i]);
}

void MetricHistogram::observe(double value) {
  if (std::isnan(value)) return;
  // The first bound that is not below the value: buckets hold what is less or equal.
  const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  counts_[static_cast<size_t>(bucket)].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
}

MetricHistogram::Snapshot MetricHistogram::snapshot() const {
  Snapshot s{.counts = std::vector<int64_t>(counts_.size()), .sum = sum_.load(std::memory_order_relaxed)};
  for (size_t i = 0; i < counts_.size(); ++i) s.counts[i] = counts_[i].load(std::memory_order_relaxed);
  return s;
}

struct MetricRegistry::Series {
  std::string labels;  // rendered, with the constant ones, without braces
  std::unique_ptr<MetricCounter> counter;
  std::unique_ptr<MetricGauge> gauge;
  std::unique_ptr<MetricHistogram> histogram;
  std::function<double()> read;
  bool used() const { return counter || gauge || histogram || read; }
};

struct MetricRegistry::Family {
  Kind kind;
  std::string name, help;
  std::vector<std::unique_ptr<Series>> series;
};

MetricRegistry::MetricRegistry(MetricLabels constant) : constant_(std::move(constant)) {}
MetricRegistry::~MetricRegistry() = default;

MetricRegistry::Series& MetricRegistry::series(Kind kind, std::string_view name, std::string_view help,
                                               const MetricLabels& labels) {
  const std::string n(name);
  CHECK(is_name(name, true), "\"%s\" is no name of a metric", n.c_str());
  CHECK(!help.empty(), "%s has no help", n.c_str());
  CHECK(name.ends_with("_total") == (kind == Kind::counter), "%s: counters end in _total, nothing else does",
        n.c_str());
  for (const char* end : {"_bucket", "_sum", "_count"})
    CHECK(kind != Kind::histogram || !name.ends_with(end), "%s: a histogram adds %s itself", n.c_str(), end);
  MetricLabels all = constant_;
  all.insert(all.end(), labels.begin(), labels.end());
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string& label = all[i].first;
    CHECK(is_name(label, false) && !label.starts_with("__"), "%s: \"%s\" is no name of a label", n.c_str(),
          label.c_str());
    CHECK(kind != Kind::histogram || label != "le", "%s: a histogram adds le itself", n.c_str());
    for (size_t j = 0; j < i; ++j) CHECK(all[j].first != label, "%s: label %s twice", n.c_str(), label.c_str());
  }
  std::string rendered;
  append_labels(rendered, all);

  auto family = std::find_if(families_.begin(), families_.end(), [&](const auto& f) { return f->name == name; });
  if (family == families_.end()) {
    families_.push_back(std::make_unique<Family>(Family{kind, n, std::string(help), {}}));
    family = families_.end() - 1;
  }
  CHECK((*family)->kind == kind && (*family)->help == help, "%s has another kind or help already", n.c_str());
  for (const auto& known : (*family)->series)
    if (known->labels == rendered) return *known;
  return *(*family)->series.emplace_back(new Series{.labels = std::move(rendered)});
}

MetricCounter& MetricRegistry::counter(std::string_view name, std::string_view help, const MetricLabels& labels) {
  const std::lock_guard lock(mutex_);
  Series& s = series(Kind::counter, name, help, labels);
  CHECK(!s.read, "a counter that is read elsewhere is asked for");
  if (!s.counter) s.counter = std::make_unique<MetricCounter>();
  return *s.counter;
}

MetricGauge& MetricRegistry::gauge(std::string_view name, std::string_view help, const MetricLabels& labels) {
  const std::lock_guard lock(mutex_);
  Series& s = series(Kind::gauge, name, help, labels);
  CHECK(!s.read, "a gauge that is read elsewhere is asked for");
  if (!s.gauge) s.gauge = std::make_unique<MetricGauge>();
  return *s.gauge;
}

MetricHistogram& MetricRegistry::histogram(std::string_view name, std::string_view help,
                                           const std::vector<double>& bounds, const MetricLabels& labels) {
  const std::lock_guard lock(mutex_);
  Series& s = series(Kind::histogram, name, help, labels);
  if (!s.histogram) s.histogram = std::make_unique<MetricHistogram>(bounds);
  CHECK(s.histogram->bounds() == bounds, "a histogram is asked for with other bounds");
  return *s.histogram;
}

void MetricRegistry::counter_of(std::string_view name, std::string_view help, std::function<double()> read,
                                const MetricLabels& labels) {
  const std::lock_guard lock(mutex_);
  Series& s = series(Kind::counter, name, help, labels);
  CHECK(!s.used(), "a counter is registered twice");
  s.read = std::move(read);
}

void MetricRegistry::gauge_of(std::string_view name, std::string_view help, std::function<double()> read,
                              const MetricLabels& labels) {
  const std::lock_guard lock(mutex_);
  Series& s = series(Kind::gauge, name, help, labels);
  CHECK(!s.used(), "a gauge is registered twice");
  s.read = std::move(read);
}

std::string MetricRegistry::text() const {
  static constexpr std::array<const char*, 3> kKinds{"counter", "gauge", "histogram"};
  const std::lock_guard lock(mutex_);
  std::string out;
  const auto line = [&](std::string_view name, std::string_view labels, double value) {
    out += name;
    if (!labels.empty()) out.append("{").append(labels).append("}");
    out.push_back(' ');
    append_number(out, value);
    out.push_back('\n');
  };
  for (const auto& family : families_) {
    out += "# HELP " + family->name + " ";
    append_escaped(out, family->help, false);
    out += "\n# TYPE " + family->name + " " + kKinds[static_cast<size_t>(family->kind)] + "\n";
    for (const auto& s : family->series) {
      if (s->read) line(family->name, s->labels, s->read());
      else if (s->counter) line(family->name, s->labels, s->counter->value());
      else if (s->gauge) line(family->name, s->labels, s->gauge->value());
      if (!s->histogram) continue;
      const MetricHistogram::Snapshot h = s->histogram->snapshot();
      int64_t below = 0;
      for (size_t i = 0; i < h.counts.size(); ++i) {
        below += h.counts[i];
        std::string labels = s->labels.empty() ? "le=\"" : s->labels + ",le=\"";
        append_number(labels, i < s->histogram->bounds().size() ? s->histogram->bounds()[i] : HUGE_VAL);
        line(family->name + "_bucket", labels + "\"", static_cast<double>(below));
      }
      line(family->name + "_sum", s->labels, h.sum);
      line(family->name + "_count", s->labels, static_cast<double>(below));
    }
  }
  return out;
}

}  // namespace rw
