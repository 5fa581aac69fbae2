// Statistics of repeated measurements. Pure; random numbers come from a seed.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace rw {

// Linear interpolation between order statistics (Hyndman & Fan 1996, type 7: numpy's and vLLM's default). share in
// [0, 1]; NaN of nothing, or when a value is NaN.
double quantile_of(std::span<const double> values, double share);
double mean_of(std::span<const double> values);
double deviation_of(std::span<const double> values);  // sample standard deviation, n - 1; 0 of fewer than two

enum class ChangeVerdict : uint8_t { better, same, worse, too_noisy };
const char* change_verdict_name(ChangeVerdict verdict);  // "better", "same", "worse", "too noisy"

struct Change {
  double ratio = 1;  // new over base: exp of the Hodges-Lehmann shift of the logarithms; NaN where there is none
  // Bounds of it: each is on its side of the truth with the confidence asked for.
  double low = 1, high = 1;
  double base = 0, now = 0;       // medians
  int64_t n_base = 0, n_now = 0;  // samples that were used
  double p_worse = 1;  // the chance of a change as far to the bad side without one; near 0: worse, near 1: better
  ChangeVerdict verdict = ChangeVerdict::same;
  std::string why;  // one line for people
};

struct ChangeQuestion {
  std::span<const double> base, now;  // in the order taken
  bool paired = false;                // sample i of both were taken side by side; equally many
  bool lower_is_better = true;
  double threshold = 0.05;   // relative; a smaller change is no regression
  double confidence = 0.95;  // of each verdict: the chance of "worse" without a change is at most 1 - confidence
  uint64_t seed = 1;
  bool quiet = true;  // the machine was; else `why` asks for a quiet one in the place of more samples
};

// Many questions at once: of those answered "yes" (p small enough), at most `level` are expected to be luck; and when
// no answer is yes in truth, one is given with at most that chance (Benjamini & Hochberg 1995). NaN: not asked.
std::vector<bool> control_false_discoveries(std::span<const double> p, double level);

// What is estimated is the shift d of the logarithms, towards the bad side: the median of all differences between a new
// and a base sample, or, paired, of the means of two pairs' differences (Hodges & Lehmann 1963). It is the estimate
// that belongs to the rank tests; of normal noise it needs 5 % more samples than the mean does (the median 57 %), and a
// wild sample moves it little. Its bounds low and high are of the percentile bootstrap (Efron 1979), their distance
// from d widened by Student's quantile over the normal one. With t = log(1 + threshold) the verdict is
//
//   worse      low > 0, d >= t / 2, not surely below the threshold (the upper bound with a fifth of the doubt is t or
//              more), and a rank test (Mann & Whitney 1947; paired: Wilcoxon 1945) agrees at 1 - confidence: the change
//              is beyond chance, and one of the threshold explains what is seen better than none does. With d >= t in
//              the place of d >= t / 2 a change of just the threshold would be found half of the time however many
//              samples there are; t / 2 is where both mistakes are equally likely.
//   better     the same to the other side
//   same       -t < low and high < t: no change as large as the threshold (two one-sided tests, Schuirmann 1987)
//   too noisy  anything else: neither none nor one of the threshold can be ruled out; `why` says about how many samples
//              would tell, or that more than a thousand would
//
// Three samples a side are the least for a verdict, and five pairs the least that can alarm at 0.95 (the rank test).
// Samples that follow each other (serial_score of rank_test.h; a drift, a neighbour's job) tell less than their number:
// neighbours are joined (the median of two) until what is left is independent; when that is too few to know, the
// verdict is too noisy. More than 40 samples a side are joined to at most 40. Samples that are not positive have no
// logarithm: too noisy, and said so. NaN samples (their pairs) are left out.
Change judge_change(const ChangeQuestion& question);

}  // namespace rw
