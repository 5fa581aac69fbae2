// A server's series by what they are, whoever made the server: ours, or vLLM's names (of two generations).
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "libcore/bench/doctor/serving_facts.h"

namespace rw {

// Buckets of a histogram, cumulated, by their upper bounds.
struct BucketCounts {
  std::vector<std::pair<double, double>> upper;  // (le, count)
  double sum = 0, count = 0;
  // As Prometheus' histogram_quantile; NaN when empty.
  double quantile(double share) const;
  // Of observations above a bound: their number and about their sum (each as the middle of its bucket).
  struct Above {
    double count = 0, sum = 0;
  };
  Above above(double bound) const;
};

// Names of one quantity; the first that a server has is it.
using SeriesNames = std::vector<const char*>;

// Of one server's looks; a label's value where only some series of the name are meant.
class ServerSeries {
 public:
  explicit ServerSeries(const ServerWatch& server) : server_(server) {}
  const char* name_of(const SeriesNames& names) const;  // null: it has none
  struct Label {
    std::string_view name, value;
  };
  // NaN: it has none of the names.
  double at(size_t look, const SeriesNames& names) const;
  double at(size_t look, const SeriesNames& names, const std::vector<Label>& labels) const;
  BucketCounts histogram(size_t look, const SeriesNames& names) const;
  size_t n_looks() const { return server_.looks.size(); }

 private:
  const ServerWatch& server_;
};

}  // namespace rw
