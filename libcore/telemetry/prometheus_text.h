// Reads Prometheus text (exposition format 0.0.4) as a scraper does.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace rw {

struct MetricSample {
  std::string name;  // "rankwright_kv_pages", "x_bucket"
  std::map<std::string, std::string> labels;
  double value = 0;
};
class MetricsText {
 public:
  // Error{input} names `where`, the line and what was expected.
  static MetricsText parse(std::string_view text, const std::string& where);
  const std::vector<MetricSample>& samples() const { return samples_; }
  // Sum over all label sets of a name; NaN when there is none.
  double sum(std::string_view name) const;
  // The same over the label sets that hold this label with this value.
  double value(std::string_view name, std::string_view label, std::string_view label_value) const;
  bool has(std::string_view name) const;
  // Of a histogram (name without _bucket): the share-quantile by linear interpolation inside its bucket, as
  // histogram_quantile does; NaN when empty. All label sets together.
  double histogram_quantile(std::string_view name, double share) const;

 private:
  std::vector<MetricSample> samples_;
};

}  // namespace rw
