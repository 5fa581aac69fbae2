// How well predictions meet what was published.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "libcore/plan/published/published_fit.h"

namespace rw {

// Of relative errors, predicted / measured - 1.
struct ErrorSummary {
  int64_t n = 0;
  double median = 0, mean = 0, p90 = 0, worst = 0;  // of their absolute values
  double bias = 0;                                  // their mean
};
ErrorSummary summarise(const std::vector<double>& errors);

// Kendall's tau-b of two orders: 1 alike, -1 reversed; ties in either count for neither. 0 when one is all ties.
double kendall_tau(const std::vector<std::pair<double, double>>& pairs);

struct PublishedError {
  const PublishedRow* row;
  StepSeconds predicted;
  double error() const { return predicted.total() / row->step_s - 1; }
};
std::vector<PublishedError> published_errors(const PublishedPricer& pricer,
                                             const std::vector<const PublishedRow*>& rows,
                                             const PublishedNumbers& numbers);
std::vector<const PublishedRow*> used_rows(const std::vector<PublishedRow>& rows);
// The source of a row as it is reported and left out: several tables of one publication, and devices of one apart.
std::string source_of(const PublishedRow& row);
std::map<std::string, std::vector<double>> errors_by_source(const std::vector<PublishedError>& errors);
// Tau of each group of rows with four layouts or more; a layout that was measured twice counts with its mean.
std::map<std::string, double> order_by_group(const std::vector<PublishedError>& errors);

}  // namespace rw
