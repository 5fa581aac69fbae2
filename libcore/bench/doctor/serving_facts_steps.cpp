#include "libcore/bench/doctor/serving_facts_steps.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "libcore/base/hash.h"
#include "libcore/bench/record/statistics.h"

namespace rw {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kBeginningPages = 4;
constexpr size_t kMostSteps = 1 << 20;
constexpr size_t kFewSteps = 20;    // of one shape, for a median to say something
constexpr double kStallFactor = 5;  // a gap that is seen beside the usual ones

uint64_t mix(uint64_t h, uint64_t v) {  // splitmix64's finalizer (Steele et al. 2014)
  uint64_t z = h + 0x9e3779b97f4a7c15 + v;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace

void StepReading::line(const Json& line) {
  try {
    if (line.contains("format")) {
      facts_.n_pages = line.at("n_pages");
      facts_.block_tokens = line.at("block_tokens");
      facts_.max_seqs = line.at("max_seqs");
      facts_.itl_budget_s = line.at("itl_budget_s");
      facts_.prefix_cache = line.at("prefix_cache");
      live_.clear();  // another server's life
      computing_.clear();
    } else if (line.contains("add")) {
      arrival(line);
    } else if (line.contains("end")) {
      forget(line.at("end"));
    } else if (line.contains("plan")) {
      plan(line.at("plan"));
    } else if (line.contains("seconds")) {
      pending_.seconds = line.at("seconds");
      ++facts_.steps;
      if (pending_.decodes > 0 && steps_.size() < kMostSteps) steps_.push_back(pending_);
      pending_ = {};
    }
  } catch (const nlohmann::json::exception&) {
    // Another version's line: what it would have told is not known.
  }
}

void StepReading::arrival(const Json& line) {
  const Json& prompt = line.at("prompt");
  Live live;
  live.prompt_tokens = static_cast<int64_t>(prompt.size());
  live.may_cache = line.at("cache");
  ++facts_.arrivals;
  prompt_tokens_ += static_cast<double>(live.prompt_tokens);
  uint64_t h = hash64(line.at("salt").get<std::string>());
  const int64_t block = std::max<int64_t>(1, facts_.block_tokens);
  bool shared = true;
  for (int64_t page = 0; (page + 1) * block <= live.prompt_tokens; ++page) {
    for (int64_t i = page * block; i < (page + 1) * block; ++i)
      h = mix(h, prompt[static_cast<size_t>(i)].get<uint64_t>());
    shared = !seen_.insert(h).second && shared;
    if (shared) shared_tokens_ += static_cast<double>(block);
    if (page + 1 == kBeginningPages) live.beginning = h;
  }
  live_[line.at("add")] = live;
}

void StepReading::plan(const Json& plan) {
  pending_ = {};
  for (const Json& row : plan.at("rows")) {
    const int64_t first = row.at(1), n = row.at(2);
    const auto at = live_.find(row.at(0).get<int64_t>());
    if (at != live_.end() && !at->second.begun) begin(at->second, first);
    const bool prefills = at != live_.end() ? first + n <= at->second.prompt_tokens : n > 1;
    if (prefills || n > 1) {
      pending_.prefill_tokens += n;
    } else {
      ++pending_.decodes;
      pending_.context += static_cast<double>(first);
    }
  }
  // All of a step compute at the same time.
  for (const Json& row : plan.at("rows")) {
    const auto at = live_.find(row.at(0).get<int64_t>());
    if (at == live_.end() || !at->second.computes) continue;
    if (row.at(1).get<int64_t>() + row.at(2).get<int64_t>() < at->second.prompt_tokens) continue;
    at->second.computes = false;
    --computing_[at->second.beginning];
  }
}

void StepReading::begin(Live& live, int64_t cached) {
  live.begun = true;
  begun_tokens_ += static_cast<double>(live.prompt_tokens);
  cached_tokens_ += static_cast<double>(cached);
  if (live.beginning == 0 || !live.may_cache || cached >= kBeginningPages * facts_.block_tokens) return;
  live.computes = true;
  facts_.stampede = std::max(facts_.stampede, ++computing_[live.beginning]);
}

void StepReading::forget(int64_t id) {
  const auto at = live_.find(id);
  if (at == live_.end()) return;
  if (at->second.computes) --computing_[at->second.beginning];
  live_.erase(at);
}

// Over the shapes that both halves have often enough; the median, weighted by nothing: most shapes say the same.
double StepReading::slowdown() const {
  std::map<std::pair<int64_t, int64_t>, std::pair<std::vector<double>, std::vector<double>>> shapes;
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Step& s = steps_[i];
    if (s.prefill_tokens > 0) continue;
    const auto octave = static_cast<int64_t>(std::log2(1 + s.context));
    auto& [early, late] = shapes[{s.decodes, octave}];
    (i < steps_.size() / 2 ? early : late).push_back(s.seconds);
  }
  std::vector<double> ratios;
  for (const auto& [shape, halves] : shapes)
    if (halves.first.size() >= kFewSteps && halves.second.size() >= kFewSteps)
      ratios.push_back(quantile_of(halves.second, 0.5) / quantile_of(halves.first, 0.5));
  return ratios.empty() ? kUnknown : quantile_of(ratios, 0.5);
}

StepFacts StepReading::facts() const {
  StepFacts f = facts_;
  f.shared_share = prompt_tokens_ > 0 ? shared_tokens_ / prompt_tokens_ : kUnknown;
  f.cached_share = begun_tokens_ > 0 ? cached_tokens_ / begun_tokens_ : kUnknown;
  f.slowdown = slowdown();
  f.stalled_share = f.stall_s = f.decode_step_s = kUnknown;
  std::vector<double> alone;
  for (const Step& s : steps_)
    if (s.prefill_tokens == 0) alone.push_back(s.seconds);
  if (alone.size() < kFewSteps) return f;
  f.decode_step_s = quantile_of(alone, 0.5);
  double all_s = 0, stalled_s = 0;
  std::vector<double> chunks;
  for (const Step& s : steps_) {
    all_s += s.seconds;
    if (s.prefill_tokens == 0) continue;
    chunks.push_back(static_cast<double>(s.prefill_tokens));
    stalled_s += s.seconds > kStallFactor * f.decode_step_s ? s.seconds : 0;
  }
  f.stalled_share = stalled_s / all_s;
  // A median: a step that was slow because the machine had no time for it is no long prompt.
  const double large = quantile_of(chunks, 0.5);
  std::vector<double> large_s;
  for (const Step& s : steps_)
    if (static_cast<double>(s.prefill_tokens) >= std::max(1.0, large)) large_s.push_back(s.seconds);
  f.stall_s = quantile_of(large_s, 0.5);
  return f;
}

}  // namespace rw
