// Statistics of repeated measurements. Pure; random numbers come from a seed.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace rw {

// Linear interpolation between order statistics (Hyndman & Fan 1996, type 7: numpy's and vLLM's default). share in
// [0, 1]; NaN of nothing.
double quantile_of(std::span<const double> values, double share);
double mean_of(std::span<const double> values);
double deviation_of(std::span<const double> values);  // sample standard deviation, n - 1; 0 of fewer than two

enum class ChangeVerdict : uint8_t { better, same, worse, too_noisy };
const char* change_verdict_name(ChangeVerdict verdict);  // "better", "same", "worse", "too noisy"

struct Change {
  double ratio = 1;          // new over base: of medians, or the median of the pairs' ratios
  double low = 1, high = 1;  // its confidence interval
  double base = 0, now = 0;  // medians
  int64_t n_base = 0, n_now = 0;
  ChangeVerdict verdict = ChangeVerdict::same;
  std::string why;  // one line for people
};

struct ChangeQuestion {
  std::span<const double> base, now;  // positive; in the order taken
  bool paired = false;                // sample i of both were taken side by side; equally many
  bool lower_is_better = true;
  double threshold = 0.05;  // relative; a smaller change is no regression
  double confidence = 0.95;
  uint64_t seed = 1;
};
// worse: the change is beyond chance (the interval leaves out 1) and beyond the threshold as far as the estimate goes;
// same: no change, or one below the threshold; too_noisy: the interval is wider than would let a change of the
// threshold be seen. Percentile bootstrap (Efron 1979) of the log ratio, with a rank test beside it (Wilcoxon 1945)
// that must agree, so that few samples do not alarm.
Change judge_change(const ChangeQuestion& question);

}  // namespace rw
