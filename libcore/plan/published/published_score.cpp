#include "libcore/plan/published/published_score.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace rw {
namespace {

constexpr size_t kLeastLayouts = 4;

double real(size_t n) { return static_cast<double>(n); }

// Of sorted values, between neighbours.
double quantile(const std::vector<double>& sorted, double q) {
  const double at = q * real(sorted.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - real(below)) * (sorted[above] - sorted[below]);
}

std::string layout_key(const PublishedRow& row) {
  const Layout& l = row.layout;
  return fmt::format("{}, vpp {}, micro-batch {}, {} of {} layers made again, group {}", l.text(), l.vpp, l.micro_batch,
                     l.recompute_layers, row.model.layers, l.zero_group == ZeroGroup::node ? "node" : "all");
}

}  // namespace

ErrorSummary summarise(const std::vector<double>& errors) {
  ErrorSummary s{.n = static_cast<int64_t>(errors.size())};
  if (errors.empty()) return s;
  std::vector<double> sizes;
  for (const double e : errors) sizes.push_back(std::fabs(e));
  std::sort(sizes.begin(), sizes.end());
  s.median = quantile(sizes, 0.5);
  s.p90 = quantile(sizes, 0.9);
  s.worst = sizes.back();
  s.mean = std::accumulate(sizes.begin(), sizes.end(), 0.0) / real(sizes.size());
  s.bias = std::accumulate(errors.begin(), errors.end(), 0.0) / real(errors.size());
  return s;
}

double kendall_tau(const std::vector<std::pair<double, double>>& pairs) {
  // Closer than rounding is equal.
  const auto order = [](double a, double b) { return std::fabs(a - b) <= 1e-9 * std::fabs(a) ? 0 : a < b ? -1 : 1; };
  double agree = 0, differ = 0, only_first = 0, only_second = 0;
  for (size_t i = 0; i < pairs.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const int first = order(pairs[i].first, pairs[j].first), second = order(pairs[i].second, pairs[j].second);
      if (first * second > 0) ++agree;
      else if (first * second < 0) ++differ;
      else if (first != 0) ++only_first;
      else if (second != 0) ++only_second;
    }
  }
  const double all = std::sqrt((agree + differ + only_first) * (agree + differ + only_second));
  return all > 0 ? (agree - differ) / all : 0;
}

std::vector<PublishedError> published_errors(const PublishedPricer& pricer,
                                             const std::vector<const PublishedRow*>& rows,
                                             const PublishedNumbers& numbers) {
  std::vector<PublishedError> errors;
  for (const PublishedRow* row : rows) errors.push_back({row, pricer.step(*row, numbers)});
  return errors;
}

std::vector<const PublishedRow*> used_rows(const std::vector<PublishedRow>& rows) {
  std::vector<const PublishedRow*> used;
  for (const PublishedRow& row : rows)
    if (row.excluded.empty()) used.push_back(&row);
  return used;
}

std::string source_of(const PublishedRow& row) {
  for (const char* publication : {"BigScience BLOOM", "Korthikanti", "nanotron", "InternEvo", "Megatron-LM SC'21",
                                  "NVIDIA dgxc-benchmarking v24.11.1 MaxText", "NVIDIA dgxc-benchmarking"})
    if (row.source.starts_with(publication)) return publication;
  if (row.source.starts_with("llm-foundry")) return "llm-foundry " + row.device;
  if (row.source.starts_with("torchtitan")) return "torchtitan " + row.device;
  return row.source;
}

std::map<std::string, std::vector<double>> errors_by_source(const std::vector<PublishedError>& errors) {
  std::map<std::string, std::vector<double>> by;
  for (const PublishedError& e : errors) by[source_of(*e.row)].push_back(e.error());
  return by;
}

std::map<std::string, double> order_by_group(const std::vector<PublishedError>& errors) {
  struct Times {
    double measured = 0, predicted = 0;
    int64_t runs = 0;
  };
  std::map<std::string, std::map<std::string, Times>> groups;
  for (const PublishedError& e : errors) {
    Times& t = groups[e.row->group][layout_key(*e.row)];
    t.measured += e.row->step_s;
    t.predicted += e.predicted.total();
    ++t.runs;
  }
  std::map<std::string, double> taus;
  for (const auto& [name, layouts] : groups) {
    if (layouts.size() < kLeastLayouts) continue;
    std::vector<std::pair<double, double>> pairs;
    for (const auto& [layout, t] : layouts)
      pairs.emplace_back(t.measured / static_cast<double>(t.runs), t.predicted / static_cast<double>(t.runs));
    taus[name] = kendall_tau(pairs);
  }
  return taus;
}

}  // namespace rw
