// Stability: jumps of the loss with what happened around them, steps that are not finite, the loss scale of f16.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "libcore/base/median.h"
#include "libcore/bench/doctor/around.h"
#include "libcore/bench/doctor/training_facts.h"

namespace rw {
namespace {

constexpr double kBack = 0.3;        // of the jump: a loss that kept less of it is back where it was
constexpr double kFewSpikes = 0.05;  // of the steps: more are no odd batches

constexpr int64_t kFirstSteps = 12;  // in which a loss scale finds its height

constexpr size_t kBefore = 10, kAround = 20;                            // steps
constexpr double kDeviations = 8, kLeastShare = 0.1, kLeastJump = 0.2;  // of the noise, of the loss, nats

struct Spike {
  int64_t step;
  double value, median;
  bool is_isolated;  // the very next losses are back
};

double loss_at(const RunView& view, int64_t step) {
  const auto at = std::lower_bound(view.run.steps.begin(), view.run.steps.end(), step,
                                   [](const StepRecord& s, int64_t n) { return s.step < n; });
  return at != view.run.steps.end() && at->step == step ? at->loss : std::nan("");
}

// Judged with hindsight, so that the steps after it count too: how much of the noise around it a loss stands above the
// median of the steps before. The guard (libcore/train/guard.h), which cannot wait, lets smaller ones pass.
double noise_around(const std::vector<const StepRecord*>& finite, size_t at) {
  const size_t from = at > kAround ? at - kAround : 0, to = std::min(finite.size(), at + kAround + 1);
  std::vector<double> moves;  // from one step to the next: a falling loss is no noise
  for (size_t i = from + 1; i < to; ++i)
    if (i != at && i != at + 1) moves.push_back(std::fabs(finite[i]->loss - finite[i - 1]->loss));
  // The difference of two values has sqrt(2) of their deviation; 1.4826: of a Gaussian (Hampel 1974).
  return moves.empty() ? 0 : 1.4826 * median(std::move(moves)) / std::sqrt(2.0);
}

// These, and what the guard said while the run went on, of steps that a rewind took back.
std::vector<Spike> loss_spikes(const RunView& view) {
  std::vector<Spike> out;
  std::set<int64_t> known;
  const auto add = [&](int64_t step, double value, double usual) {
    if (!known.insert(step).second) return;
    std::vector<double> next;
    for (int64_t s = step + 1; s <= step + 3; ++s)
      if (const double l = loss_at(view, s); std::isfinite(l)) next.push_back(l);
    const bool is_back = next.size() >= 2 && median(next) < usual + kBack * (value - usual);
    out.push_back({step, value, usual, is_back});
  };
  std::vector<const StepRecord*> finite;
  for (const StepRecord& s : view.run.steps)
    if (std::isfinite(s.loss)) finite.push_back(&s);
  for (size_t i = kBefore; i < finite.size(); ++i) {
    std::vector<double> before;
    for (size_t k = i - kBefore; k < i; ++k) before.push_back(finite[k]->loss);
    const double usual = median(std::move(before)), jump = finite[i]->loss - usual;
    if (jump > std::max({kDeviations * noise_around(finite, i), kLeastShare * usual, kLeastJump}))
      add(finite[i]->step, finite[i]->loss, usual);
  }
  for (const FlatRecord& e : view.events)
    if (e.word("event") == "spike" && e.word("verdict") == "loss_spike" && std::isfinite(e.number("step")))
      add(static_cast<int64_t>(e.number("step")), e.number("value"), e.number("median"));
  std::sort(out.begin(), out.end(), [](const Spike& a, const Spike& b) { return a.step < b.step; });
  return out;
}

// What the guard said of norms while the run went on.
void collect_norm_spikes(const RunView& view, Facts& facts) {
  int64_t n = 0;
  const FlatRecord* worst = nullptr;
  for (const FlatRecord& e : view.events) {
    if (e.word("event") != "spike" || e.word("verdict") != "norm_spike") continue;
    ++n;
    if (worst == nullptr || e.number("value") > worst->number("value")) worst = &e;
  }
  if (worst == nullptr) return;
  facts.set("norm.spikes", {static_cast<double>(n),
                            fmt::format("step {}: {:.3g} over a median of {:.3g}", worst->number("step"),
                                        worst->number("value"), worst->number("median")),
                            "events.jsonl (spike)"});
}

const char* near_fact(NearKind kind) {
  switch (kind) {
    case NearKind::failure:
    case NearKind::late_rank: return "spike.near_wait";
    case NearKind::resume: return "spike.near_resume";
    case NearKind::data_stall: return "spike.near_data_stall";
    case NearKind::clock_drop: return "spike.near_clock_drop";
    case NearKind::lr_jump: return "spike.near_lr_jump";
    case NearKind::skip:
    case NearKind::slow_step:
    case NearKind::checkpoint: break;
  }
  return nullptr;
}

void collect_spikes(const RunView& view, Facts& facts) {
  const std::vector<Spike> spikes = loss_spikes(view);
  if (spikes.empty()) return;
  const auto highest = std::max_element(spikes.begin(), spikes.end(), [](const Spike& a, const Spike& b) {
    return a.value - a.median < b.value - b.median;
  });
  std::string what;
  bool is_explained = false;
  // Neighbours of a burst are asked about at its first step.
  int64_t n_isolated = 0, last = -100, n_bursts = 0;
  for (const Spike& spike : spikes) {
    n_isolated += spike.is_isolated ? 1 : 0;
    const bool begins = spike.step > last + 5;
    last = spike.step;
    if (!begins) continue;
    ++n_bursts;
    for (const NearEvent& near : around(view, spike.step)) {
      if (what.size() < 200) what += (what.empty() ? "" : "; ") + near.text;
      const char* name = near_fact(near.kind);
      if (name == nullptr) continue;
      is_explained = true;
      if (facts.find(name) == nullptr)
        facts.set(name, {static_cast<double>(near.step), near.text, fmt::format("records around step {}", spike.step)});
    }
  }
  const std::string where = fmt::format("metrics.jsonl, step {}", highest->step);
  facts.set(
      "spike.count",
      {static_cast<double>(spikes.size()),
       fmt::format("step {}: {:.3g} over a median of {:.3g}", highest->step, highest->value, highest->median), where});
  facts.set("spike.bursts", {static_cast<double>(n_bursts), "", where});
  facts.set("spike.around", {static_cast<double>(highest->step), what.empty() ? "nothing that was recorded" : what,
                             "events.jsonl, metrics.jsonl, resources.jsonl"});
  if (is_explained) return;
  const bool all_back = n_isolated == static_cast<int64_t>(spikes.size());
  const bool few =
      static_cast<double>(spikes.size()) <= std::max(2.0, kFewSpikes * static_cast<double>(view.run.steps.size()));
  // Of so few tokens the mean itself is noise: a batch that is unlike the others says nothing of the data.
  constexpr double kFewTokens = 256;
  double tokens = std::nan("");
  if (view.run.steps.size() > 1)
    tokens = (view.run.steps.back().tokens - view.run.steps.front().tokens) /
             static_cast<double>(view.run.steps.back().step - view.run.steps.front().step);
  if (std::isfinite(tokens)) facts.set("batch.tokens", {tokens, "", "metrics.jsonl (tokens)"});
  facts.set(all_back && tokens < kFewTokens ? "spike.of_small_batch"
            : all_back && few               ? "spike.of_batch"
                                            : "spike.unexplained",
            {static_cast<double>(highest->step), facts.find("spike.count")->text, where});
}

void collect_nonfinite(const RunView& view, Facts& facts) {
  std::vector<int64_t> bad;
  int64_t in_a_row = 0, longest = 0;
  std::set<int64_t> overflows;
  for (const FlatRecord& e : view.events)
    if (e.word("event") == "skip" && e.word("reason") == "f16 overflow" && std::isfinite(e.number("step")))
      overflows.insert(static_cast<int64_t>(e.number("step")));
  for (const StepRecord& s : view.run.steps) {
    const bool is_bad = (!std::isfinite(s.loss) || !std::isfinite(s.grad_norm)) && overflows.count(s.step) == 0 &&
                        (s.skipped || !std::isfinite(s.loss));
    in_a_row = is_bad ? in_a_row + 1 : 0;
    longest = std::max(longest, in_a_row);
    if (is_bad) bad.push_back(s.step);
  }
  if (!bad.empty()) {
    const std::string where = fmt::format("metrics.jsonl, from step {}", bad.front());
    facts.set("nonfinite.steps", {static_cast<double>(bad.size()),
                                  fmt::format("from step {}, at most {} in a row", bad.front(), longest), where});
    facts.set("nonfinite.in_a_row", {static_cast<double>(longest), "", where});
    facts.set("nonfinite.first", {static_cast<double>(bad.front()), "", where});
    if (bad.front() == view.run.steps.front().step) facts.set("nonfinite.from_start", {1, "", where});
    std::vector<double> norms, last_norms;
    for (const StepRecord& s : view.run.steps)
      if (s.step < bad.front() && std::isfinite(s.grad_norm))
        (s.step >= bad.front() - 3 ? last_norms : norms).push_back(s.grad_norm);
    if (norms.size() >= 3 && !last_norms.empty() && median(norms) > 0)
      facts.set("nonfinite.norm_before",
                {*std::max_element(last_norms.begin(), last_norms.end()) / median(norms), "", where});
  }
  for (const FlatRecord& e : view.events) {
    const std::string kind = e.word("event");
    if (kind == "nan_trace")
      facts.set("nonfinite.origin", {e.number("rank"), e.word("origin"), "events.jsonl (nan_trace)"});
    if (kind == "failed" && std::isfinite(e.number("skips_in_a_row")))
      facts.set("run.gave_up",
                {e.number("skips_in_a_row"), "", fmt::format("events.jsonl, step {}", e.number("step"))});
  }
}

void collect_scale(const RunView& view, Facts& facts) {
  double highest = 0, lowest = INFINITY, last = std::nan("");
  int64_t in_a_row = 0, longest = 0, n_settled = 0, n_skipped = 0, n_first = 0;
  const int64_t settled_from = view.settled.empty() ? 0 : view.settled.front()->step;
  for (const StepRecord& s : view.run.steps) {
    if (!(s.loss_scale > 0)) continue;
    highest = std::max(highest, s.loss_scale), lowest = std::min(lowest, s.loss_scale), last = s.loss_scale;
    in_a_row = s.skipped ? in_a_row + 1 : 0;
    longest = std::max(longest, in_a_row);
    if (s.step <= kFirstSteps && s.skipped) ++n_first;
    if (s.step < settled_from) continue;
    ++n_settled;
    n_skipped += s.skipped ? 1 : 0;
  }
  if (!(last > 0)) return;
  const char* where = "metrics.jsonl (loss_scale, skipped)";
  facts.set("scale.last", {last, fmt::format("from {:g} down to {:g}", highest, lowest), where});
  facts.set("scale.halvings", {std::log2(highest / lowest), "", where});
  facts.set("scale.skips_in_a_row", {static_cast<double>(longest), "", where});
  facts.set("scale.first_skips", {static_cast<double>(n_first), "", where});
  if (n_settled > 0)
    facts.set("scale.skipped_share",
              {n_skipped > 2 ? static_cast<double>(n_skipped) / static_cast<double>(n_settled) : 0, "", where});
}

}  // namespace

void collect_stability_facts(const RunView& view, Facts& facts) {
  collect_spikes(view, facts);
  collect_norm_spikes(view, facts);
  collect_nonfinite(view, facts);
  collect_scale(view, facts);
}

}  // namespace rw
