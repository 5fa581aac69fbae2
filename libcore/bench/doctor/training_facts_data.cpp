// Data flow: waiting for data, the same data again, data with nothing to learn.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "libcore/base/error.h"
#include "libcore/bench/doctor/training_facts.h"
#include "libcore/data/token_file.h"

namespace rw {
namespace {

// A stall is a step whose data took both this share of a usual step and this long: below lies the scheduler's noise.
constexpr double kStallOfStep = 0.5, kStallSeconds = 0.05;
constexpr int64_t kMostTokens = 2 << 20;  // of a file that are looked at
constexpr int64_t kFewTokens = 4096;      // too few to judge the order of tokens by their pairs
constexpr size_t kWindow = 64;
constexpr size_t kFewSteps = 8;  // settled; fewer say nothing of shares

double data_s(const StepRecord& s) { return s.second(TimeCategory::data); }

void collect_waits(const RunView& view, Facts& facts) {
  const double share = median_of(view.settled, [](const StepRecord& s) { return share_of_step(s, data_s(s)); });
  const double usual = median_of(view.settled, data_s);
  if (std::isnan(share) || view.settled.size() < kFewSteps) return;
  facts.set("data.share", {share, "", steps_text(view)});
  facts.set("data.s", {usual, "", steps_text(view)});
  double seconds = 0, total = 0, worst = 0, all = 0;
  int64_t n = 0, worst_step = -1;
  for (const StepRecord* s : view.settled) {
    const double d = data_s(*s);
    if (!std::isfinite(d)) continue;
    total += s->step_s;
    all += d;
    if (d < kStallSeconds || d < kStallOfStep * view.step_s || d < 5 * usual) continue;
    ++n;
    seconds += d;
    if (d > worst) worst = d, worst_step = s->step;
  }
  if (total > 0)
    facts.set("data.mean_share",
              {all / total, fmt::format("{:.3g} s in {} steps", all, view.settled.size()), steps_text(view)});
  if (n == 0) return;
  facts.set("data.stalls", {static_cast<double>(n), fmt::format("the worst at step {}", worst_step), steps_text(view)});
  facts.set("data.stall_s", {worst, "", fmt::format("metrics.jsonl, step {}", worst_step)});
  if (total > 0) facts.set("data.stall_share", {seconds / total, "", steps_text(view)});
}

void collect_repeats(const RunView& view, Facts& facts) {
  std::unordered_map<std::string, int64_t> last;
  std::map<int64_t, int64_t> distances;
  int64_t n_repeats = 0, n = 0, first_repeat = -1, first_of_it = -1;
  for (const StepRecord& s : view.run.steps) {
    if (s.batch_fingerprint.empty()) continue;
    ++n;
    const auto [at, is_new] = last.try_emplace(s.batch_fingerprint, s.step);
    if (is_new) continue;
    if (n_repeats++ == 0) first_repeat = s.step, first_of_it = at->second;
    ++distances[s.step - at->second];
    at->second = s.step;
  }
  if (n == 0) return;
  const std::string where =
      fmt::format("metrics.jsonl, steps {} to {}", view.run.steps.front().step, view.run.steps.back().step);
  facts.set(
      "data.repeated_share",
      {static_cast<double>(n_repeats) / static_cast<double>(n),
       n_repeats > 0 ? fmt::format("first at step {}, the batch of step {}", first_repeat, first_of_it) : "", where});
  facts.set("data.repeats", {static_cast<double>(n_repeats), "", where});
  if (n_repeats == 0) return;
  const auto usual = std::max_element(distances.begin(), distances.end(),
                                      [](const auto& a, const auto& b) { return a.second < b.second; });
  facts.set("data.period", {static_cast<double>(usual->first), "", where});
}

void collect_epochs(const RunView& view, Facts& facts) {
  double available = 0;
  for (int64_t i = 0;; ++i) {
    const double tokens = view.identity.number(fmt::format("data.{}.tokens", i));
    if (!std::isfinite(tokens)) break;
    available += tokens;
  }
  if (available <= 0 || view.run.steps.empty()) return;
  const double used = view.run.steps.back().tokens;
  const double held_back = view.identity.number("config.val_fraction");
  const double trained_on = available * (std::isfinite(held_back) ? 1 - held_back : 1);
  if (std::isfinite(used) && trained_on > 0)
    facts.set("data.epochs", {used / trained_on, "", "run.json (data), metrics.jsonl (tokens)"});
}

// Training and validation part when the data is known by heart.
void collect_memorised(const RunView& view, Facts& facts) {
  double val = std::nan(""), at_step = std::nan("");
  for (const FlatRecord& e : view.events)
    if (e.word("event") == "validation") val = e.number("val_loss"), at_step = e.number("step");
  const size_t n = std::min<size_t>(view.settled.size(), 20);
  const double train = median_of(std::span(view.settled).last(n), [](const StepRecord& s) { return s.loss; });
  if (!std::isfinite(val) || !std::isfinite(train)) return;
  facts.set("data.validation_gap", {val - train, fmt::format("{:.3g} in training, {:.3g} in validation", train, val),
                                    fmt::format("events.jsonl, step {}", at_step)});
}

// Steps that were not finite although the steps around them were, all with one batch.
void collect_bad_batches(const RunView& view, Facts& facts) {
  std::map<std::string, int64_t> bad, good;
  for (const StepRecord& s : view.run.steps) {
    if (s.batch_fingerprint.empty()) continue;
    ++(std::isfinite(s.loss) ? good : bad)[s.batch_fingerprint];
  }
  for (const auto& [fingerprint, n] : bad)
    if (n > 1 && good.count(fingerprint) == 0 && good.size() > 1)
      facts.set("data.nonfinite_batch", {static_cast<double>(n), "batch " + fingerprint, "metrics.jsonl"});
}

double entropy_of(const std::unordered_map<uint64_t, int64_t>& counts, double n) {
  double h = 0;
  for (const auto& [key, c] : counts) h -= static_cast<double>(c) / n * std::log(static_cast<double>(c) / n);
  return h;
}

// Of pairs (a, b). Both orders of the same tokens have the same bias from so few pairs.
double pair_entropy(std::span<const int32_t> first, std::span<const int32_t> second) {
  std::unordered_map<uint64_t, int64_t> counts;
  for (size_t i = 0; i < first.size(); ++i)
    ++counts[static_cast<uint64_t>(static_cast<uint32_t>(first[i])) << 32 | static_cast<uint32_t>(second[i])];
  return entropy_of(counts, static_cast<double>(first.size()));
}

// The share of windows that were there before; of those that are chosen by their own hash, one in 2^bits, so that a
// repeated one is found wherever it lies (Manber 1994). -1 when there are too few to tell.
double repeated_windows(std::span<const int32_t> tokens, int bits) {
  constexpr uint64_t kBase = 0x9E3779B97F4A7C15ull;
  uint64_t hash = 0, leaving = 1;
  for (size_t i = 0; i < kWindow; ++i) leaving *= kBase;
  std::unordered_set<uint64_t> seen;
  int64_t n_windows = 0, n_repeated = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    hash = hash * kBase + static_cast<uint64_t>(tokens[i]) + 1;
    if (i >= kWindow) hash -= leaving * (static_cast<uint64_t>(tokens[i - kWindow]) + 1);
    const uint64_t mixed = (hash ^ hash >> 32) * 0xD6E8FEB86659FD93ull;
    if (i + 1 < kWindow || (bits > 0 && mixed >> (64 - bits) != 0)) continue;
    ++n_windows;
    n_repeated += seen.insert(hash).second ? 0 : 1;
  }
  const auto expected = static_cast<int64_t>(tokens.size() >> bits);
  return 4 * n_windows < expected ? -1 : static_cast<double>(n_repeated) / static_cast<double>(n_windows);
}

}  // namespace

TokenLook look_at_tokens(std::span<const int32_t> tokens) {
  TokenLook look;
  const size_t n = tokens.size();
  if (n < 2 * kWindow) return look;
  // When the data has few distinct windows, all of them may escape the choice; a small file is looked at whole.
  if (n >= static_cast<size_t>(kFewTokens)) look.repeated_share = repeated_windows(tokens, 4);
  else look.repeated_share = -1;
  if (look.repeated_share < 0) look.repeated_share = repeated_windows(tokens, 0);
  std::unordered_map<uint64_t, int64_t> singles;
  for (const int32_t t : tokens) ++singles[static_cast<uint32_t>(t)];
  look.entropy = entropy_of(singles, static_cast<double>(n));
  std::vector<int32_t> shuffled(tokens.begin(), tokens.end());
  uint64_t state = 1;
  for (size_t i = n - 1; i > 0; --i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    std::swap(shuffled[i], shuffled[(state >> 33) % (i + 1)]);
  }
  look.order_gain = pair_entropy(std::span(shuffled).first(n - 1), std::span(shuffled).subspan(1)) -
                    pair_entropy(tokens.first(n - 1), tokens.subspan(1));
  return look;
}

void collect_token_facts(const RunView& view, Facts& facts) {
  double entropy = std::nan("");
  std::string unread;  // why files were not looked at
  const auto leave_out = [&](const std::string& why) { unread += (unread.empty() ? "" : "; ") + why; };
  int64_t n_files = 0;
  for (int64_t i = 0;; ++i) {
    const std::filesystem::path path = view.identity.word(fmt::format("data.{}.path", i));
    if (path.empty()) break;
    ++n_files;
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(path, ignored)) {
      leave_out(path.string() + " is not there");
      continue;
    }
    try {
      const TokenFile file(path);
      // Another file of that name says nothing of this run.
      if (file.fingerprint() != view.identity.word(fmt::format("data.{}.fingerprint", i))) {
        leave_out(path.string() + " is another one than the run read");
        continue;
      }
      const int64_t n = std::min(file.n_tokens(), kMostTokens);
      if (n < static_cast<int64_t>(4 * kWindow)) {
        leave_out(fmt::format("{} has {} tokens, {} are needed", path.string(), n, 4 * kWindow));
        continue;
      }
      std::vector<int32_t> tokens(static_cast<size_t>(n));
      file.read(0, n, tokens.data());
      const TokenLook look = look_at_tokens(tokens);
      const std::string where = fmt::format("{}, {} tokens", path.string(), n);
      const Fact* worst = facts.find("data.repeated_windows");
      if (worst == nullptr || look.repeated_share > worst->value)
        facts.set("data.repeated_windows", {look.repeated_share, path.filename().string(), where});
      if (n < kFewTokens) continue;
      entropy = look.entropy;
      const Fact* least = facts.find("data.order_gain");
      const double share = look.entropy > 0 ? look.order_gain / look.entropy : 1;
      if (least == nullptr || share < least->value)
        facts.set("data.order_gain", {share, path.filename().string(), where});
    } catch (const Error&) {
      facts.set("data.unreadable", {1, path.string(), path.string()});
      leave_out(path.string() + " cannot be read");
    }
  }
  if (!unread.empty()) facts.set("data.not_looked_at", {1, unread, "run.json (data)"});
  // A model that knows how frequent each token is and nothing else has their entropy as its loss.
  const Fact *loss = facts.find("loss.middle"), *progress = facts.find("loss.middle_progress");
  if (loss == nullptr || progress == nullptr || n_files != 1 || !(entropy > 0)) return;
  const double ratio = loss->value / entropy;
  facts.set("loss.over_frequencies", {ratio, "", "metrics.jsonl and the token file"});
  if (ratio > 0.93 && ratio < 1.1 && progress->value < 0.02)
    facts.set("loss.frequencies_only", {loss->value, "", "metrics.jsonl and the token file"});
}

void collect_data_facts(const RunView& view, Facts& facts) {
  collect_waits(view, facts);
  collect_repeats(view, facts);
  collect_epochs(view, facts);
  collect_memorised(view, facts);
  collect_bad_batches(view, facts);
}

}  // namespace rw
