// Which tokens may be drawn: min_p, then top_k of what is left, then the smallest set of the likeliest of those whose
// share reaches top_p. Decisions from gathered summaries alone, so that all ranks make the same.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "libcore/serve/sampler_scan.h"
#include "libcore/serve/sampling.h"

namespace rw {

struct Truncation {
  int64_t top_k;  // 0: all
  double top_p;   // 1: all
  double min_p;   // 0: all
  Truncation(const SamplingParams& p, int64_t vocab);
  bool none() const { return top_k == 0 && top_p >= 1 && min_p <= 0; }
  // top_p is a share of all weights.
  bool needs_total() const { return top_k == 0 && top_p < 1 && min_p <= 0; }
};

// The likeliest tokens of the vocabulary, in order.
struct Likeliest {
  std::span<const TokenLogit> tokens;
  bool whole;    // there are no others
  double total;  // of all weights, when needs_total()
};
// How many of them may be drawn; -1 when tokens behind them decide.
int64_t count_kept(const Truncation& t, const Likeliest& likeliest, const Weigh& weigh);

// What a rank has of the kept tokens.
struct RankShare {
  int64_t ties = 0;  // see Cut
  double mass = 0;
};

// Finds where the kept tokens end, however many they are. Each round all ranks say how much lies at or above kProbes
// logits, which narrows the interval [lo, hi) that the end lies in; a short one's tokens are then listed.
class CutSearch {
 public:
  struct Start {
    float known_to;     // the end is at or below this logit
    double negligible;  // weight of tokens that cannot be kept; 0: not known
    int ranks;
  };
  CutSearch(const Truncation& t, const Weigh& weigh, const Start& start);

  enum class Needs : uint8_t { probes, list, nothing };
  Needs needs() const { return needs_; }
  bool narrowed() const { return n_rounds_ > 0; }  // [lo, hi) is not the whole row
  float lo() const { return lo_; }
  float hi() const { return hi_; }
  const float (&at() const)[kProbes] { return at_; }
  int64_t list_length(size_t rank) const { return reached_[rank].count - passed_[rank].count; }  // tokens in [lo, hi)

  // (ranks, kProbes) of each rank's tokens, when narrowed() of those in [lo, hi).
  void digest(std::span<const Probe* const> of_rank);
  // (ranks) tokens in [lo, hi), by id.
  void digest(std::span<const std::vector<TokenLogit>> of_rank);

  float cut() const { return cut_; }
  const std::vector<RankShare>& shares() const { return shares_; }

 private:
  using Probes = std::vector<Probe>;  // (ranks)
  double amount(const Probes& p) const;
  void start(bool by_count, double target, float lo, float known_to, float guess);
  void place_probes();
  void end_round();
  void end_at(float z, std::span<const int64_t> ties, const std::vector<double>& mass);

  Truncation t_;
  Weigh weigh_;
  bool by_count_ = false;
  double target_ = 0;  // tokens, or weight, to be reached; 0: not known yet
  float lo_ = 0, hi_ = 0, at_[kProbes] = {};
  Probes passed_, reached_;  // at or above hi, lo
  int64_t n_rounds_ = 0;
  Needs needs_ = Needs::probes;
  bool found_top_k_ = false;
  float cut_ = 0;
  std::vector<RankShare> shares_;
};

}  // namespace rw
