// Parameters: does the loss move, what the layout wastes, what was promised.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "libcore/base/median.h"
#include "libcore/bench/doctor/around.h"
#include "libcore/bench/doctor/training_facts.h"

namespace rw {
namespace {

constexpr size_t kFlatSteps = 40;    // at least, beyond the warm-up, to call a loss flat
constexpr double kFlatShare = 0.02;  // of the loss: what fell less in the whole run stands still
constexpr double kUntrained = 0.5;   // of ln(vocabulary): a loss above has much left to learn
constexpr size_t kPart = 10;         // steps whose median stands for "then"

std::vector<double> finite_losses(const RunView& view) {
  std::vector<double> out;
  for (const StepRecord& s : view.run.steps)
    if (std::isfinite(s.loss)) out.push_back(s.loss);
  return out;
}

void collect_progress(const RunView& view, Facts& facts) {
  const std::vector<double> losses = finite_losses(view);
  const double vocab = view.identity.number("model_config.vocab_size");
  if (losses.empty()) return;
  const std::string where =
      fmt::format("metrics.jsonl, steps {} to {}", view.run.steps.front().step, view.run.steps.back().step);
  if (vocab > 1) facts.set("loss.uniform", {std::log(vocab), "", "run.json: ln of the vocabulary"});
  if (const StepRecord& first = view.run.steps.front(); vocab > 1 && first.step == 1 && std::isfinite(first.loss))
    facts.set("loss.start_over_uniform", {first.loss / std::log(vocab), fmt::format("{:.4g}", first.loss), where});
  double highest_lr = 0;
  for (const StepRecord& s : view.run.steps)
    if (s.lr > highest_lr) highest_lr = s.lr;
  facts.set("lr.highest", {highest_lr, "", where});
  const double warm_up = view.identity.number("config.warmup_steps");
  if (losses.size() < kFlatSteps || static_cast<double>(losses.size()) < warm_up + 20) return;
  const size_t part = std::max(kPart, losses.size() / 10);
  const double first = median(std::vector<double>(losses.begin(), losses.begin() + static_cast<std::ptrdiff_t>(part)));
  const double last = median(std::vector<double>(losses.end() - static_cast<std::ptrdiff_t>(part), losses.end()));
  double best = first;
  for (size_t i = 0; i + part <= losses.size(); i += part)
    best = std::min(best, median(std::vector<double>(losses.begin() + static_cast<std::ptrdiff_t>(i),
                                                     losses.begin() + static_cast<std::ptrdiff_t>(i + part))));
  if (const size_t third = losses.size() / 3, window = third / 2; window >= kPart) {
    const auto part_at = [&](size_t from) {
      const auto begin = losses.begin() + static_cast<std::ptrdiff_t>(from);
      return median(std::vector<double>(begin, begin + static_cast<std::ptrdiff_t>(window)));
    };
    const double early = part_at(third), late = part_at(2 * third - window);
    facts.set("loss.middle", {late, "", where});
    facts.set("loss.middle_progress", {(early - late) / early, "", where});
  }
  facts.set("loss.last", {last, "", where});
  facts.set("loss.first", {first, "", where});
  facts.set("loss.rise", {last - best, fmt::format("{:.3g} at its best, {:.3g} at the end", best, last), where});
  const bool from_start = view.run.steps.front().step <= 1;
  if (from_start && vocab > 1 && last > kUntrained * std::log(vocab)) {
    facts.set("loss.progress",
              {(first - last) / first, fmt::format("{:.3g} at first, {:.3g} at the end", first, last), where});
    if (last > (1 - kFlatShare) * first && best > (1 - kFlatShare) * first) facts.set("loss.flat", {last, "", where});
  }
}

// A loss that rose and fell back again: medians of a few steps stand above the best before by more than the noise of
// single steps makes (the highest and the lowest of many such medians lie about four deviations apart), and for longer
// than a batch. The first loss is that of weights that know nothing: it counts as it is.
void collect_excursion(const RunView& view, Facts& facts) {
  constexpr size_t kWindow = 7, kLeastSteps = 10;                     // fewer above half the rise are a spike
  constexpr double kNoises = 6, kLeastRise = 0.5, kLeastShare = 0.1;  // nats; of the loss before
  std::vector<double> losses, moves;
  std::vector<int64_t> steps;
  for (const StepRecord& s : view.run.steps)
    if (std::isfinite(s.loss)) losses.push_back(s.loss), steps.push_back(s.step);
  if (losses.size() < 2 * kWindow) return;
  for (size_t i = 1; i < losses.size(); ++i) moves.push_back(std::fabs(losses[i] - losses[i - 1]));
  const double noise = 1.4826 * median(std::move(moves)) / std::sqrt(2.0);
  const auto smooth_at = [&](size_t i) {
    const size_t from = std::min(i > kWindow / 2 ? i - kWindow / 2 : 0, losses.size() - kWindow);
    const auto begin = losses.begin() + static_cast<std::ptrdiff_t>(from);
    return median(std::vector<double>(begin, begin + kWindow));
  };
  std::vector<double> smooth;
  for (size_t i = 0; i < losses.size(); ++i) smooth.push_back(smooth_at(i));
  double best = view.run.steps.front().step <= 1 ? losses.front() : smooth.front(), rise = 0, from = best;
  size_t peak = 0;
  for (size_t i = 0; i < smooth.size(); ++i) {
    if (smooth[i] - best > rise) rise = smooth[i] - best, from = best, peak = i;
    best = std::min(best, smooth[i]);
  }
  if (rise < std::max({kLeastRise, kLeastShare * from, kNoises * noise})) return;
  size_t n_above = 0;  // in a row, about the peak
  for (size_t i = peak; i < smooth.size() && smooth[i] > from + rise / 2; ++i) ++n_above;
  for (size_t i = peak; i > 0 && smooth[i - 1] > from + rise / 2; --i) ++n_above;
  if (n_above < kLeastSteps) return;
  const double last = smooth.back();
  facts.set("loss.excursion",
            {rise,
             fmt::format("{:.3g} before, {:.3g} about step {}, {:.3g} at the end{}", from, smooth[peak], steps[peak],
                         last, last > losses.front() && steps.front() <= 1 ? ", worse than at the start" : ""),
             fmt::format("metrics.jsonl, about step {}", steps[peak])});
}

void collect_layout(const RunView& view, Facts& facts) {
  const double pp = view.identity.number("layout.pp"), m = view.identity.number("layout.micro_batches"),
               chunks = view.identity.number("layout.vpp");
  const double measured =
      median_of(view.settled, [](const StepRecord& s) { return share_of_step(s, s.second(TimeCategory::bubble)); });
  if (pp > 1 && m >= 1) {
    const double v = chunks >= 1 ? chunks : 1;
    // Of 1F1B, interleaved or not, and of GPipe (Narayanan et al. 2021): (p - 1) / v of m micro-batches' time.
    const bool fills_bubbles = view.identity.word("layout.schedule").starts_with("zb");
    if (!fills_bubbles)
      facts.set("bubble.of_layout", {(pp - 1) / v / (m + (pp - 1) / v),
                                     fmt::format("{} stages, {} micro-batches", pp, m), "run.json (layout)"});
    if (std::isfinite(measured)) facts.set("bubble.share", {measured, "rank 0", steps_text(view)});
  }
  const double mfu = median_of(view.settled, [](const StepRecord& s) { return s.mfu_causal; });
  if (std::isfinite(mfu)) facts.set("mfu", {mfu, view.identity.word("peak_flops_source"), steps_text(view)});
}

void collect_promises(const RunView& view, Facts& facts) {
  const double predicted = view.identity.number("predicted.step-time-s");
  if (!(predicted > 0) || !(view.step_s > 0)) return;
  const double ratio = view.step_s / predicted;
  std::string worst = "no category alone";
  double most = 0.1 * predicted;
  for (size_t c = 0; c < static_cast<size_t>(TimeCategory::n_categories); ++c) {
    const auto category = static_cast<TimeCategory>(c);
    const double promised = view.identity.number(fmt::format("predicted.{}-s", time_category_name(category)));
    const double took = median_of(view.settled, [&](const StepRecord& s) { return s.second(category); });
    if (!std::isfinite(promised) || !std::isfinite(took) || took - promised <= most) continue;
    most = took - promised;
    worst = fmt::format("{}: {:.3g} s predicted, {:.3g} s measured", time_category_name(category), promised, took);
  }
  facts.set("step.predicted_s", {predicted, "", "run.json (predicted)"});
  facts.set("step.over_predicted", {ratio, worst, steps_text(view)});
}

// Norms that grow by factors, all the way, and not from the noise of the first steps.
void collect_norm_trend(const RunView& view, Facts& facts) {
  std::vector<double> logs;
  for (const StepRecord* s : view.settled)
    if (s->grad_norm > 0 && std::isfinite(s->grad_norm)) logs.push_back(std::log(s->grad_norm));
  if (logs.size() < 30) return;
  const size_t n = std::min(logs.size(), kSlopePoints);
  const double growth = robust_slope(logs) * static_cast<double>(n - 1);
  const size_t part = logs.size() / 3;
  const auto third = [&](size_t k) {
    const auto from = logs.begin() + static_cast<std::ptrdiff_t>(k * part);
    return median(std::vector<double>(from, from + static_cast<std::ptrdiff_t>(part)));
  };
  const bool is_steady = third(0) < third(1) && third(1) < third(2);
  if (is_steady) facts.set("norm.growth", {std::exp(growth), "", steps_text(view)});
}

void collect_changes(const RunView& view, Facts& facts) {
  const std::vector<int64_t> jumps = lr_jumps(view);
  if (!jumps.empty()) {
    const int64_t at = jumps.front();
    bool is_resumed = false;
    for (const FlatRecord& e : view.events)
      is_resumed = is_resumed || (e.word("event") == "resume" && static_cast<int64_t>(e.number("step")) == at - 1);
    const auto s =
        std::find_if(view.run.steps.begin(), view.run.steps.end(), [&](const StepRecord& r) { return r.step == at; });
    facts.set("lr.jump", {s->lr / std::prev(s)->lr,
                          fmt::format("at step {}: {:.3g} to {:.3g}{}", at, std::prev(s)->lr, s->lr,
                                      is_resumed ? ", where the run was resumed" : ""),
                          fmt::format("metrics.jsonl, step {}", at)});
  }
  for (size_t i = 2; i < view.run.steps.size(); ++i) {
    const StepRecord &a = view.run.steps[i - 2], &b = view.run.steps[i - 1], &c = view.run.steps[i];
    if (b.step != a.step + 1 || c.step != b.step + 1) continue;
    const double before = b.tokens - a.tokens, now = c.tokens - b.tokens;
    if (!(before > 0) || !(now > 0) || before == now) continue;
    const double lr = c.lr / b.lr;
    facts.set("batch.change",
              {now / before, fmt::format("{} to {} tokens a step, the learning rate times {:.2g}", before, now, lr),
               fmt::format("metrics.jsonl, step {}", c.step)});
    // Linear (Goyal et al. 2017) or square-root scaling are both usual.
    const double ratio = now / before;
    const double low = std::min(std::sqrt(ratio), ratio) * 0.8, high = std::max(std::sqrt(ratio), ratio) * 1.25;
    if (std::isfinite(lr) && (lr < low || lr > high)) facts.set("batch.lr_not_scaled", {lr, "", "metrics.jsonl"});
    return;
  }
}

void collect_parallel_check(const RunView& view, Facts& facts) {
  for (const FlatRecord& e : view.events) {
    if (e.word("event") != "verify_parallel") continue;
    const double error = e.number("loss_error");
    if (!std::isfinite(error)) continue;
    facts.set("parallel.loss_error", {error, view.identity.word("precision"), "events.jsonl (verify_parallel)"});
    if (view.identity.word("precision") == "f32")
      facts.set("parallel.f32_error", {error, "", "events.jsonl (verify_parallel)"});
    return;
  }
}

}  // namespace

void collect_parameter_facts(const RunView& view, Facts& facts) {
  collect_progress(view, facts);
  collect_excursion(view, facts);
  collect_layout(view, facts);
  collect_promises(view, facts);
  collect_norm_trend(view, facts);
  collect_changes(view, facts);
  collect_parallel_check(view, facts);
}

}  // namespace rw
