// Counters, gauges and histograms, and their text for Prometheus (exposition format 0.0.4). Updates are atomic and
// lock nothing; text() may run beside them.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rw {

using MetricLabels = std::vector<std::pair<std::string, std::string>>;

class MetricCounter {
 public:
  void add(double amount = 1);  // not negative
  double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_ = 0;
};

class MetricGauge {
 public:
  void set(double value) { value_.store(value, std::memory_order_relaxed); }
  void add(double amount) { value_.fetch_add(amount, std::memory_order_relaxed); }
  double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_ = 0;
};

class MetricHistogram {
 public:
  explicit MetricHistogram(std::vector<double> bounds);
  void observe(double value);  // a NaN is left out
  const std::vector<double>& bounds() const { return bounds_; }
  struct Snapshot {
    std::vector<int64_t> counts;  // one a bound, and one for what is above the last; not cumulative
    double sum;
  };
  Snapshot snapshot() const;

 private:
  const std::vector<double> bounds_;
  std::vector<std::atomic<int64_t>> counts_;
  std::atomic<double> sum_ = 0;
};

// The metrics of one process. A name may be asked for with several sets of labels; the same name and labels give the
// same metric. References stay good as long as the registry. Names and labels are checked with CHECK: counters end in
// "_total", nothing else does; colons (vllm:...) pass, though promtool warns of them.
class MetricRegistry {
 public:
  explicit MetricRegistry(MetricLabels constant = {});  // on every line
  ~MetricRegistry();
  MetricCounter& counter(std::string_view name, std::string_view help, const MetricLabels& labels = {});
  MetricGauge& gauge(std::string_view name, std::string_view help, const MetricLabels& labels = {});
  // `bounds`: the buckets' upper ends, ascending and finite; the one to +Inf is added.
  MetricHistogram& histogram(std::string_view name, std::string_view help, const std::vector<double>& bounds,
                             const MetricLabels& labels = {});
  // Read when the text is made, by whoever makes it: must not block, and must not use this registry.
  void counter_of(std::string_view name, std::string_view help, std::function<double()> read,
                  const MetricLabels& labels = {});
  void gauge_of(std::string_view name, std::string_view help, std::function<double()> read,
                const MetricLabels& labels = {});
  std::string text() const;
  static constexpr std::string_view kContentType = "text/plain; version=0.0.4; charset=utf-8";

 private:
  struct Series;
  struct Family;
  enum class Kind : uint8_t { counter, gauge, histogram };
  Series& series(Kind kind, std::string_view name, std::string_view help, const MetricLabels& labels);
  MetricLabels constant_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Family>> families_;
};

}  // namespace rw
