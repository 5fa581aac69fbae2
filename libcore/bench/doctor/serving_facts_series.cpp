#include "libcore/bench/doctor/serving_facts_series.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>

namespace rw {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

bool fits(const MetricSample& s, const std::vector<ServerSeries::Label>& labels) {
  return std::all_of(labels.begin(), labels.end(), [&](const ServerSeries::Label& l) {
    const auto at = s.labels.find(std::string(l.name));
    return at != s.labels.end() && at->second == l.value;
  });
}

}  // namespace

double BucketCounts::quantile(double share) const {
  if (upper.empty() || !(upper.back().second > 0)) return kUnknown;
  const double wanted = share * upper.back().second;
  double low = 0, below = 0;
  for (const auto& [bound, cumulated] : upper) {
    if (cumulated >= wanted && cumulated > below) {
      if (std::isinf(bound)) return low;
      return low + (bound - low) * std::max(0.0, wanted - below) / (cumulated - below);
    }
    if (!std::isinf(bound)) low = bound;
    below = cumulated;
  }
  return low;
}

BucketCounts::Above BucketCounts::above(double bound) const {
  Above a;
  double low = 0, below = 0;
  for (const auto& [high, cumulated] : upper) {
    if (low >= bound) {
      const double n = cumulated - below;
      a.count += n;
      a.sum += n * (std::isinf(high) ? low : (low + high) / 2);
    }
    low = high;
    below = cumulated;
  }
  return a;
}

const char* ServerSeries::name_of(const SeriesNames& names) const {
  for (const char* name : names)
    for (const MetricSample& s : server_.looks.back().samples)
      if (std::string_view(s.name).starts_with(name) && (s.name == name || s.name == std::string(name) + "_count"))
        return name;
  return nullptr;
}

double ServerSeries::at(size_t look, const SeriesNames& names) const { return at(look, names, {}); }

double ServerSeries::at(size_t look, const SeriesNames& names, const std::vector<Label>& labels) const {
  const char* name = name_of(names);
  if (name == nullptr) return kUnknown;
  double sum = 0;
  for (const MetricSample& s : server_.looks[look].samples)
    if (s.name == name && fits(s, labels)) sum += s.value;
  return sum;
}

BucketCounts ServerSeries::histogram(size_t look, const SeriesNames& names) const {
  BucketCounts h;
  const char* name = name_of(names);
  if (name == nullptr) return h;
  const std::string bucket = std::string(name) + "_bucket", sum = std::string(name) + "_sum",
                    count = std::string(name) + "_count";
  std::map<double, double> upper;
  for (const MetricSample& s : server_.looks[look].samples) {
    if (s.name == sum) h.sum += s.value;
    else if (s.name == count) h.count += s.value;
    else if (s.name == bucket) {
      const auto le = s.labels.find("le");
      if (le == s.labels.end()) continue;
      const double bound =
          le->second == "+Inf" ? std::numeric_limits<double>::infinity() : std::strtod(le->second.c_str(), nullptr);
      upper[bound] += s.value;
    }
  }
  h.upper.assign(upper.begin(), upper.end());
  return h;
}

}  // namespace rw
