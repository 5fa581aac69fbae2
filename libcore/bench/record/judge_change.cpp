#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "libcore/base/check.h"
#include "libcore/base/rng.h"
#include "libcore/bench/record/rank_test.h"
#include "libcore/bench/record/statistics.h"
#include "libcore/bench/record/student_t.h"

namespace rw {
namespace {

constexpr int64_t kResamples = 2000;
constexpr int64_t kLeastSamples = 3;  // of two, the bounds are wrong twice as often as they say
constexpr int64_t kMostSamples = 40;
// 1 % of independent samples, 0.1 % of pairs, out of which a drift has fallen: each such mistake costs a verdict.
constexpr double kSerialScore = 2.326, kSerialScorePaired = 3.09;

// The samples that were positive numbers, as logarithms towards the bad side; paired: the differences are in `now`.
struct Logs {
  std::vector<double> base, now;
  bool paired = false;
};

struct Shift {
  double estimate = 0, low = 0, high = 0, error = 0;
  double far_low = 0, far_high = 0;  // with a fifth of the doubt
  int64_t freedom = 1;
};

double middle_of(std::vector<double>& values) {
  const size_t n = values.size(), half = n / 2;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(half), values.end());
  if (n % 2 == 1) return values[half];
  return 0.5 * (values[half] + *std::max_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(half)));
}

// Hodges & Lehmann 1963. `scratch` saves an allocation a call.
double shift_of(const Logs& logs, std::vector<double>& scratch) {
  scratch.clear();
  if (logs.paired) {
    for (size_t i = 0; i < logs.now.size(); ++i)
      for (size_t j = i; j < logs.now.size(); ++j) scratch.push_back(0.5 * (logs.now[i] + logs.now[j]));
  } else {
    for (const double now : logs.now)
      for (const double base : logs.base) scratch.push_back(now - base);
  }
  return middle_of(scratch);
}

std::vector<double> joined(const std::vector<double>& values, size_t n) {
  std::vector<double> out;
  for (size_t first = 0; first + n <= values.size(); first += n)
    out.push_back(quantile_of(std::span(values).subspan(first, n), 0.5));
  return out;
}

// True when the samples resemble their neighbours and are too few to be joined any further.
bool join_neighbours(std::vector<double>& values, double most) {
  if (const auto n = static_cast<int64_t>(values.size()); n > kMostSamples)
    values = joined(values, static_cast<size_t>((n + kMostSamples - 1) / kMostSamples));
  while (serial_score(values) > most) {
    if (static_cast<int64_t>(values.size()) < 2 * kLeastForSerial) return true;
    values = joined(values, 2);
  }
  return false;
}

void resample(const std::vector<double>& from, std::vector<double>& to, uint64_t key, uint64_t& counter) {
  to.resize(from.size());
  const double n = static_cast<double>(from.size());
  for (double& v : to) v = from[std::min(from.size() - 1, static_cast<size_t>(random_uniform(key, counter++) * n))];
}

Shift bootstrap(const Logs& logs, double confidence, uint64_t seed) {
  std::vector<double> scratch, shifts;
  Shift shift;
  shift.estimate = shift_of(logs, scratch);
  Logs drawn{.base = {}, .now = {}, .paired = logs.paired};
  const uint64_t key = rng_key(seed, "judge_change");
  uint64_t counter = 0;
  for (int64_t i = 0; i < kResamples; ++i) {
    resample(logs.now, drawn.now, key, counter);
    if (!logs.paired) resample(logs.base, drawn.base, key, counter);
    shifts.push_back(shift_of(drawn, scratch));
  }
  const auto n_now = static_cast<int64_t>(logs.now.size()), n_base = static_cast<int64_t>(logs.base.size());
  shift.freedom = logs.paired ? n_now - 1 : n_now + n_base - 2;
  shift.error = deviation_of(shifts);
  const auto bound = [&](double share) {
    const double surely = std::max(share, 1 - share), side = share > 0.5 ? 1 : -1;
    const double widen = student_quantile(surely, shift.freedom) / normal_quantile(surely);
    return shift.estimate + side * widen * std::max(0.0, side * (quantile_of(shifts, share) - shift.estimate));
  };
  shift.low = bound(1 - confidence);
  shift.high = bound(confidence);
  shift.far_low = bound((1 - confidence) / 5);
  shift.far_high = bound(1 - (1 - confidence) / 5);
  return shift;
}

bool ranks_agree(const Logs& logs, bool is_worse, double level) {
  if (logs.paired) {
    std::vector<double> d = logs.now;
    if (!is_worse)
      for (double& v : d) v = -v;
    return signed_rank_p(d) <= level;
  }
  return (is_worse ? mann_whitney_p(logs.base, logs.now) : mann_whitney_p(logs.now, logs.base)) <= level;
}

// Of any number of samples, can the rank test say anything?
bool enough_for_ranks(int64_t n_base, int64_t n_now, bool paired, double level) {
  std::vector<double> base, now;
  for (int64_t i = 0; i < std::min(n_base, kMostSamples); ++i) base.push_back(static_cast<double>(i));
  for (int64_t i = 0; i < std::min(n_now, kMostSamples); ++i) now.push_back(static_cast<double>(n_base + i + 1));
  return (paired ? signed_rank_p(now) : mann_whitney_p(base, now)) <= level;
}

std::string percent(double log_shift) { return fmt::format("{:+.1f} %", 100 * std::expm1(log_shift)); }

// Samples that let the bounds close to the threshold: their distance falls with the root of the number.
std::string samples_needed(const ChangeQuestion& q, const Shift& s, double t, int64_t n) {
  if (!q.quiet) return "; measure on a quiet machine";
  constexpr double kWorthWhile = 1000;
  const double needed = std::ceil(static_cast<double>(n) * std::pow((s.high - s.low) / t, 2));
  const char* what = q.paired ? "pairs" : "samples a side";
  if (!(needed <= kWorthWhile))
    return fmt::format("; more than {:.0f} {} would be needed: find out what the noise is", kWorthWhile, what);
  return fmt::format("; about {:.0f} {} would tell", std::max(needed, static_cast<double>(n + 1)), what);
}

struct Judged {
  ChangeVerdict verdict;
  std::string why;
};

Judged judge(const ChangeQuestion& q, const Logs& logs, const Shift& s, bool is_serial) {
  const double t = std::log1p(q.threshold), level = 1 - q.confidence + 1e-12;
  const auto n_now = static_cast<int64_t>(logs.now.size()),
             n_base = logs.paired ? n_now : static_cast<int64_t>(logs.base.size());
  const bool is_worse = s.low > 0 && s.far_high >= t && s.estimate >= t / 2;
  const bool is_better = s.high < 0 && s.far_low <= -t && s.estimate <= -t / 2;
  // In the metric's own direction, for people.
  const double sign = q.lower_is_better ? 1 : -1;
  const std::string seen = percent(sign * s.estimate),
                    between = fmt::format("between {} and {}", percent(sign * (q.lower_is_better ? s.low : s.high)),
                                          percent(sign * (q.lower_is_better ? s.high : s.low)));
  const bool is_same = s.low > -t && s.high < t;
  const Judged same{ChangeVerdict::same, fmt::format("any change is {}: below {:g} %", between, 100 * q.threshold)};
  if (is_serial)
    return {ChangeVerdict::too_noisy,
            "samples resemble those just before them (a drift, or somebody else's job): measure both sides by turns"};
  if (is_worse || is_better) {
    if (ranks_agree(logs, is_worse, level))
      return {is_worse ? ChangeVerdict::worse : ChangeVerdict::better, fmt::format("{}, {}", seen, between)};
    if (is_same) return same;
    if (!enough_for_ranks(n_base, n_now, logs.paired, level))
      return {ChangeVerdict::too_noisy, fmt::format("{} seen, but {} cannot tell a change from luck at {:g} %", seen,
                                                    logs.paired ? fmt::format("{} pairs", n_now)
                                                                : fmt::format("{} and {} samples", n_base, n_now),
                                                    100 * q.confidence)};
    return {ChangeVerdict::too_noisy, fmt::format("{} seen, but the ranks of the samples could be luck", seen)};
  }
  if (is_same) return same;
  return {ChangeVerdict::too_noisy,
          fmt::format("a change {} is possible{}", between, samples_needed(q, s, t, std::min(n_base, n_now)))};
}

// Fills n_base, n_now and the medians; false, with why, where there is nothing to take logarithms of.
bool take_logs(const ChangeQuestion& q, Logs& logs, Change& change) {
  std::vector<double> base, now;
  const auto take = [](double v, std::vector<double>& to) {
    if (!std::isnan(v)) to.push_back(v);
  };
  if (q.paired) {
    for (size_t i = 0; i < q.base.size(); ++i) {
      if (std::isnan(q.base[i]) || std::isnan(q.now[i])) continue;
      base.push_back(q.base[i]);
      now.push_back(q.now[i]);
    }
  } else {
    for (const double v : q.base) take(v, base);
    for (const double v : q.now) take(v, now);
  }
  change.n_base = static_cast<int64_t>(base.size());
  change.n_now = static_cast<int64_t>(now.size());
  change.base = quantile_of(base, 0.5);
  change.now = quantile_of(now, 0.5);
  const auto refuse = [&](std::string why) {
    change.verdict = ChangeVerdict::too_noisy;
    change.why = std::move(why);
    return false;
  };
  if (base.empty() || now.empty()) return refuse(base.empty() ? "base has no samples" : "new has no samples");
  for (const auto& [values, side] : {std::pair{&base, "base"}, std::pair{&now, "new"}})
    for (const double v : *values)
      if (!(v > 0) || std::isinf(v)) {
        const bool all_equal = std::all_of(base.begin(), base.end(), [&](double x) { return x == v; }) &&
                               std::all_of(now.begin(), now.end(), [&](double x) { return x == v; });
        if (all_equal) {
          change.ratio = change.low = change.high = 1;
          change.verdict = ChangeVerdict::same;
          change.why = fmt::format("all samples are {:g}", v);
          return false;
        }
        return refuse(fmt::format("a sample of {} is {:g}: only positive samples have a ratio", side, v));
      }
  change.ratio = change.now / change.base;
  if (const int64_t least = std::min(change.n_base, change.n_now); least < kLeastSamples)
    return refuse(fmt::format("{} {} of {}: too few to know the noise; repeat the measurement, {} times or more", least,
                              least == 1 ? "sample" : "samples", change.n_base == least ? "base" : "new",
                              kLeastSamples));
  logs.paired = q.paired;
  const double sign = q.lower_is_better ? 1 : -1;
  for (const double v : base) logs.base.push_back(sign * std::log(v));
  for (const double v : now) logs.now.push_back(sign * std::log(v));
  if (q.paired) {
    for (size_t i = 0; i < now.size(); ++i) logs.now[i] -= logs.base[i];
    logs.base.clear();
  }
  return true;
}

}  // namespace

const char* change_verdict_name(ChangeVerdict verdict) {
  switch (verdict) {
    case ChangeVerdict::better: return "better";
    case ChangeVerdict::same: return "same";
    case ChangeVerdict::worse: return "worse";
    case ChangeVerdict::too_noisy: break;
  }
  return "too noisy";
}

Change judge_change(const ChangeQuestion& q) {
  CHECK(!q.paired || q.base.size() == q.now.size(), "pairs of %zu and %zu samples", q.base.size(), q.now.size());
  CHECK(q.threshold > 0 && q.confidence > 0.5 && q.confidence < 1, "threshold %g, confidence %g", q.threshold,
        q.confidence);
  Change change;
  const double none = std::numeric_limits<double>::quiet_NaN();
  change.ratio = change.low = change.high = change.p_worse = none;
  Logs logs;
  if (!take_logs(q, logs, change)) return change;
  const double most = q.paired ? kSerialScorePaired : kSerialScore;
  const bool now_serial = join_neighbours(logs.now, most), base_serial = join_neighbours(logs.base, most);
  const Shift s = bootstrap(logs, q.confidence, q.seed);
  const double sign = q.lower_is_better ? 1 : -1;
  change.ratio = std::exp(sign * s.estimate);
  change.low = std::exp(sign * (q.lower_is_better ? s.low : s.high));
  change.high = std::exp(sign * (q.lower_is_better ? s.high : s.low));
  if (s.error > 0) change.p_worse = 1 - student_cdf(s.estimate / s.error, s.freedom);
  else change.p_worse = s.estimate > 0 ? 0 : s.estimate < 0 ? 1 : 0.5;
  const Judged judged = judge(q, logs, s, now_serial || base_serial);
  change.verdict = judged.verdict;
  change.why = judged.why;
  return change;
}

}  // namespace rw
