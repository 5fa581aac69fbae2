#include "libcore/serve/sampler_cut.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace rw {
namespace {
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNegligible = 4e-11;  // exp(-24): where probes begin to look when nothing is known
constexpr double kLeastTarget = std::numeric_limits<double>::min();  // top_p 0 still keeps the likeliest
constexpr int64_t kAll = std::numeric_limits<int64_t>::max();
constexpr int64_t kListed = 256;       // tokens in a list, over all ranks, at most
constexpr int64_t kRoundsByValue = 4;  // then the interval is cut by floats instead: 8 rounds end any search

// Floats in their order as integers.
int64_t key_of(float z) {
  const int32_t bits = std::bit_cast<int32_t>(z);
  return bits >= 0 ? int64_t{bits} : -int64_t{bits & 0x7fffffff};
}
float of_key(int64_t key) {
  const float size = std::bit_cast<float>(static_cast<int32_t>(key >= 0 ? key : -key));
  return key >= 0 ? size : -size;
}
float next_up(float z) { return std::nextafter(z, std::numeric_limits<float>::max()); }

// The smallest logit of a weight above 0 that reaches min_p.
float least_logit(const Weigh& weigh, double min_p) {
  const auto enough = [&](float z) {
    const double w = weigh(z);
    return w > 0 && w >= min_p;
  };
  int64_t in = key_of(weigh.max), out = key_of(std::numeric_limits<float>::lowest()) - 1;
  while (in - out > 1) {
    const int64_t middle = out + (in - out) / 2;
    (enough(of_key(middle)) ? in : out) = middle;
  }
  return of_key(in);
}
}  // namespace

Truncation::Truncation(const SamplingParams& p, int64_t vocab)
    : top_k(p.top_k > 0 && p.top_k < vocab ? p.top_k : 0), top_p(p.top_p), min_p(std::clamp(p.min_p, 0.0, 1.0)) {}

int64_t count_kept(const Truncation& t, const Likeliest& likeliest, const Weigh& weigh) {
  const int64_t n = static_cast<int64_t>(likeliest.tokens.size());
  const int64_t limit = t.top_k > 0 ? std::min(t.top_k, n) : n;
  std::vector<double> upto;  // weights of the first 1, 2, ... that min_p and top_k allow
  for (int64_t i = 0; i < limit; ++i) {
    const double w = weigh(likeliest.tokens[static_cast<size_t>(i)].z);
    if (w <= 0 || w < t.min_p) break;
    upto.push_back(w + (i > 0 ? upto.back() : 0));
  }
  const int64_t allowed = static_cast<int64_t>(upto.size());
  const bool complete = likeliest.whole || allowed < limit || allowed == t.top_k;
  if (t.top_p >= 1) return complete ? allowed : -1;
  if (!complete && !t.needs_total()) return -1;
  const double target = t.top_p * (complete ? upto.back() : likeliest.total);
  const auto end = std::lower_bound(upto.begin(), upto.end(), target);
  if (end == upto.end()) return complete ? allowed : -1;
  return end - upto.begin() + 1;
}

CutSearch::CutSearch(const Truncation& t, const Weigh& weigh, const Start& s)
    : t_(t), weigh_(weigh), shares_(static_cast<size_t>(s.ranks)) {
  const double guess =
      static_cast<double>(weigh.max) + std::log(std::max(s.negligible, kNegligible)) / static_cast<double>(weigh.inv_t);
  start(t.top_k > 0, static_cast<double>(t.top_k), least_logit(weigh, t.min_p), s.known_to,
        static_cast<float>(std::max(guess, static_cast<double>(std::numeric_limits<float>::lowest()))));
}

// The first probes: nothing, all that is known to be kept, steps down to the guess, everything.
void CutSearch::start(bool by_count, double target, float lo, float known_to, float guess) {
  by_count_ = by_count;
  target_ = target;
  lo_ = lo;
  hi_ = next_up(weigh_.max);
  n_rounds_ = 0;
  needs_ = Needs::probes;
  passed_.assign(shares_.size(), {.mass = 0, .count = 0});
  reached_ = passed_;
  constexpr int64_t kStepsFrom = 2;
  at_[0] = hi_;
  at_[1] = next_up(known_to);
  const double top = static_cast<double>(known_to), bottom = static_cast<double>(std::clamp(guess, lo, known_to));
  for (int64_t k = kStepsFrom; k < kProbes; ++k)
    at_[k] = static_cast<float>(top + (bottom - top) * static_cast<double>(k - kStepsFrom) /
                                          static_cast<double>(kProbes - 1 - kStepsFrom));
  at_[kProbes - 1] = lo;
}

void CutSearch::place_probes() {
  constexpr double kParts = static_cast<double>(kProbes + 1);
  const double hi = static_cast<double>(hi_), lo = static_cast<double>(lo_);
  const int64_t hi_key = key_of(hi_), lo_key = key_of(lo_);
  for (int64_t k = 0; k < kProbes; ++k)
    at_[k] = n_rounds_ < kRoundsByValue ? static_cast<float>(hi + (lo - hi) * static_cast<double>(k + 1) / kParts)
                                        : of_key(hi_key - (hi_key - lo_key) * (k + 1) / (kProbes + 1));
}

double CutSearch::amount(const Probes& p) const {
  double sum = 0;
  for (const Probe& x : p) sum += by_count_ ? static_cast<double>(x.count) : x.mass;
  return sum;
}

void CutSearch::digest(std::span<const Probe* const> of_rank) {
  const auto upto = [&](int64_t k) {
    Probes p = passed_;
    for (size_t r = 0; r < p.size(); ++r) {
      p[r].mass += of_rank[r][k].mass;
      p[r].count += of_rank[r][k].count;
    }
    return p;
  };
  const bool first = n_rounds_ == 0;
  if (first && target_ <= 0)
    target_ = t_.top_p < 1 ? std::max(t_.top_p * amount(upto(kProbes - 1)), kLeastTarget) : kInf;
  int64_t k = 0;
  while (k < kProbes && amount(upto(k)) < target_) ++k;
  if (first && k == kProbes) {  // all are kept; of top_k's, all that it kept
    std::vector<double> mass;
    for (const Probe& p : upto(kProbes - 1)) mass.push_back(p.mass);
    needs_ = Needs::nothing;
    if (!found_top_k_) end_at(lo_, std::vector<int64_t>(mass.size(), kAll), mass);
    return;
  }
  const Probes passed = k > 0 ? upto(k - 1) : passed_;
  if (k < kProbes) {
    reached_ = upto(k);
    lo_ = at_[k];
  }
  if (k > 0) hi_ = at_[k - 1];
  passed_ = passed;
  end_round();
}

void CutSearch::end_round() {
  ++n_rounds_;
  int64_t n = 0;
  std::vector<double> mass;
  for (size_t r = 0; r < passed_.size(); ++r) {
    n += list_length(r);
    mass.push_back(passed_[r].mass);
  }
  if (n == 0) {  // rounding left the target just out of reach
    end_at(hi_, std::vector<int64_t>(mass.size(), kAll), mass);
    return;
  }
  if (next_up(lo_) < hi_) {
    needs_ = n <= kListed ? Needs::list : Needs::probes;
    if (needs_ == Needs::probes) place_probes();
    return;
  }
  // All that is left has one logit: so many as the target asks for, by id.
  const double weight = weigh_(lo_), missing = target_ - amount(passed_);
  int64_t left =
      static_cast<int64_t>(std::clamp(by_count_ ? missing : std::ceil(missing / weight), 1.0, static_cast<double>(n)));
  std::vector<int64_t> ties;
  for (size_t r = 0; r < passed_.size(); ++r) {
    ties.push_back(std::min(left, list_length(r)));
    mass[r] += static_cast<double>(ties.back()) * weight;
    left -= ties.back();
  }
  end_at(lo_, ties, mass);
}

void CutSearch::digest(std::span<const std::vector<TokenLogit>> of_rank) {
  std::vector<TokenLogit> all;
  for (const auto& list : of_rank) all.insert(all.end(), list.begin(), list.end());
  std::sort(all.begin(), all.end(), before);
  double sum = amount(passed_);
  size_t n = 0;
  for (; n < all.size() && sum < target_; ++n) sum += by_count_ ? 1 : weigh_(all[n].z);
  const TokenLogit last = all[n - 1];
  std::vector<int64_t> ties;
  std::vector<double> mass;
  for (size_t r = 0; r < of_rank.size(); ++r) {
    ties.push_back(0);
    mass.push_back(passed_[r].mass);
    for (const TokenLogit& t : of_rank[r]) {
      if (before(last, t)) continue;
      mass.back() += weigh_(t.z);
      ties.back() += t.z == last.z;
    }
  }
  end_at(last.z, ties, mass);
}

// The search for top_k ends; one for top_p follows when it asks for less.
void CutSearch::end_at(float z, std::span<const int64_t> ties, const std::vector<double>& mass) {
  cut_ = z;
  double total = 0;
  for (size_t r = 0; r < mass.size(); ++r) {
    shares_[r] = {.ties = ties[r], .mass = mass[r]};
    total += mass[r];
  }
  needs_ = Needs::nothing;
  if (!by_count_ || t_.top_p >= 1) return;
  found_top_k_ = true;
  start(false, std::max(t_.top_p * total, kLeastTarget), z, weigh_.max, z);
}

}  // namespace rw
