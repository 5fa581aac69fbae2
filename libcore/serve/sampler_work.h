// A row that the sampler is at work on: what it knows of it, and which message its ranks exchange next.
#pragma once
#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

#include "libcore/base/rng.h"
#include "libcore/serve/sampler.h"
#include "libcore/serve/sampler_cut.h"
#include "libcore/serve/sampler_rules.h"
#include "libcore/serve/sampler_scan.h"

namespace rw {

// A rank's summary of a row, followed by its best tokens after the rules, then those before them.
struct SampleHead {
  double sum, raw_sum;  // weights relative to max at the row's temperature; relative to raw_max at 1
  float max, raw_max;
  int32_t arg;            // id of max
  int32_t n_best, n_raw;  // tokens that follow
  int32_t finite;
};
struct SampleTold {
  int32_t id;
  float raw;
};

// A row on its way. What is above the line is this rank's, below it is the same on all ranks.
struct Sampler::Work {
  SampleRow row{};
  int64_t slot = 0;     // of DeviceLogits
  bool is_here = true;  // the row's logits are in the host's memory
  std::vector<ChangedLogit> changed;
  RowScan scan;
  std::vector<double> block_sum;
  Columns listed;  // in the search's interval
  bool is_listed = false;
  std::vector<TokenLogit> best, raw_best;
  Cut cut{.z = -std::numeric_limits<float>::infinity(), .ties = std::numeric_limits<int64_t>::max()};
  // -------------------------
  enum class Stage : uint8_t { head, probe, list, tell, done } stage = Stage::head;
  enum class Trouble : uint8_t { none, not_finite, masked } trouble = Trouble::none;
  bool scored = false;  // id was given
  int64_t n_best = 0;   // tokens of a rank's summary
  int64_t n_raw = 0;
  std::optional<CutSearch> search;
  int owner = -1;     // has the token to be drawn
  double target = 0;  // in the owner's weights
  float cut_max = 0;  // the weights are relative to it
  int32_t id = -1;
  float raw = 0;
  double lse = 0;  // log of the sum of exp(raw logit)
  std::vector<TokenLogit> merged;
  Sampled* out = nullptr;

  void start(const SampleRow& r, Sampled* result) {
    row = r;
    is_here = true;
    out = result;
    *out = {};
    changed.clear();
    search.reset();
    is_listed = false;
    stage = Stage::head;
    trouble = Trouble::none;
    scored = false;
    n_best = n_raw = 0;
    owner = id = -1;
    cut = {.z = -std::numeric_limits<float>::infinity(), .ties = std::numeric_limits<int64_t>::max()};
  }
  const SamplingParams& params() const { return *row.params; }
  bool draws() const { return !scored && !params().greedy(); }
  bool tells_logprob() const { return scored || params().top_logprobs >= 0; }
  // A rule changes logits before a token is chosen.
  bool has_rules() const {
    return !scored && (!params().logit_bias.empty() || (row.n_output < params().min_tokens && !params().ends.empty()) ||
                       (row.counts != nullptr && params().looks_at_counts()));
  }
  Truncation truncation(int64_t vocab) const { return {params(), vocab}; }
  double uniform() const {
    return random_uniform(rng_key(params().seed, "sample"), static_cast<uint64_t>(row.position));
  }
  int64_t message_bytes() const {
    switch (stage) {
      case Stage::head:
        return static_cast<int64_t>(sizeof(SampleHead)) + (n_best + n_raw) * static_cast<int64_t>(sizeof(TokenLogit));
      case Stage::probe: return kProbes * static_cast<int64_t>(sizeof(Probe));
      case Stage::list: {
        int64_t longest = 0;
        for (size_t r = 0; r < search->shares().size(); ++r) longest = std::max(longest, search->list_length(r));
        return longest * static_cast<int64_t>(sizeof(TokenLogit));
      }
      case Stage::tell: return sizeof(SampleTold);
      case Stage::done: break;
    }
    return 0;
  }
  void decided(int32_t which) {
    id = which;
    stage = tells_logprob() ? Stage::tell : Stage::done;
  }
  void advance_search(std::span<const std::byte* const> messages) {
    if (stage == Stage::probe) {
      std::vector<const Probe*> probes;
      for (const std::byte* m : messages) probes.push_back(reinterpret_cast<const Probe*>(m));
      search->digest(probes);
    } else {
      std::vector<std::vector<TokenLogit>> lists;
      for (size_t r = 0; r < messages.size(); ++r) {
        lists.emplace_back(static_cast<size_t>(search->list_length(r)));
        if (!lists[r].empty()) std::memcpy(lists[r].data(), messages[r], lists[r].size() * sizeof(TokenLogit));
      }
      search->digest(lists);
    }
    stage = search->needs() == CutSearch::Needs::list ? Stage::list : Stage::probe;
  }
  // The rank whose share holds the row's random number.
  void pick_owner(const std::vector<double>& shares) {
    double total = 0;
    for (const double s : shares) total += s;
    target = uniform() * total;
    for (size_t r = 0; r < shares.size(); ++r) {
      if (shares[r] <= 0) continue;
      owner = static_cast<int>(r);
      if (target < shares[r]) break;
      target -= shares[r];
    }
    stage = Stage::tell;
  }
};

}  // namespace rw
