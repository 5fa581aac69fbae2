#include "libcore/train/guard.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "libcore/base/error.h"
#include "libcore/base/median.h"

namespace rw {
namespace {

struct Judged {
  double median = 0, deviations = 0;
};

Judged judge(double value, const std::deque<double>& accepted, double relative_floor, double floor) {
  const std::vector<double> values(accepted.begin(), accepted.end());
  const double middle = median(values);
  std::vector<double> apart;
  for (const double v : values) apart.push_back(std::abs(v - middle));
  const double deviation = std::max({1.4826 * median(std::move(apart)), relative_floor * std::abs(middle), floor});
  return {.median = middle, .deviations = (value - middle) / deviation};
}

GuardAction action_of(Verdict verdict, SpikePolicy policy) {
  if (verdict == Verdict::ok) return GuardAction::go_on;
  if (verdict == Verdict::not_finite) return GuardAction::skip;
  switch (policy) {
    case SpikePolicy::warn: return GuardAction::warn;
    case SpikePolicy::skip: return GuardAction::skip;
    case SpikePolicy::rewind: return verdict == Verdict::loss_spike ? GuardAction::rewind : GuardAction::skip;
  }
  return GuardAction::warn;
}

void append(std::deque<double>& window, double value) {
  window.push_back(value);
  if (window.size() > Guard::kWindow) window.pop_front();
}

std::deque<double> read_window(const Json& state, const char* key, const std::string& where) {
  const auto it = state.is_object() ? state.find(key) : state.end();
  if (!state.is_object() || it == state.end() || !it->is_array() || it->size() > Guard::kWindow)
    fail(ErrorKind::input, "{}: key \"{}\": expected an array of at most {} numbers", where, key, Guard::kWindow);
  std::deque<double> values;
  for (const Json& v : *it) {
    if (!v.is_number() || !std::isfinite(v.get<double>()))
      fail(ErrorKind::input, "{}: key \"{}\": expected numbers, found {}", where, key, v.dump());
    values.push_back(v.get<double>());
  }
  return values;
}

}  // namespace

const char* verdict_name(Verdict v) {
  switch (v) {
    case Verdict::ok: return "ok";
    case Verdict::loss_spike: return "loss_spike";
    case Verdict::norm_spike: return "norm_spike";
    case Verdict::not_finite: return "not_finite";
  }
  return "?";
}

SpikePolicy spike_policy(const std::string& name) {
  if (name == "warn") return SpikePolicy::warn;
  if (name == "skip") return SpikePolicy::skip;
  if (name == "rewind") return SpikePolicy::rewind;
  fail(ErrorKind::usage, "--on-spike: expected one of warn, skip, rewind, found \"{}\"", name);
}

GuardReport Guard::observe(int64_t step, double loss, double grad_norm) {
  GuardReport report{.step = step, .value = loss};
  const double log_norm = std::log(std::max(grad_norm, kLeastNorm));
  if (!std::isfinite(loss) || !std::isfinite(grad_norm)) {
    report.verdict = Verdict::not_finite;
  } else if (losses_.size() >= kWarmUp) {
    const Judged of_loss = judge(loss, losses_, kLossRelativeFloor, kLossFloor),
                 of_norm = judge(log_norm, log_norms_, 0, kLogNormFloor);
    const auto spike = [&](const Judged& j) { return settings_.threshold > 0 && j.deviations > settings_.threshold; };
    report.median = of_loss.median;
    report.deviations = of_loss.deviations;
    if (spike(of_loss)) {
      report.verdict = Verdict::loss_spike;
    } else if (spike(of_norm)) {
      report.verdict = Verdict::norm_spike;
      report.value = grad_norm;
      report.median = std::exp(of_norm.median);
      report.deviations = of_norm.deviations;
    }
  }
  report.action = action_of(report.verdict, settings_.policy);
  if (report.verdict == Verdict::ok) {
    append(losses_, loss);
    append(log_norms_, log_norm);
    spikes_in_a_row_ = 0;
  } else if (report.verdict != Verdict::not_finite && ++spikes_in_a_row_ >= kNewLevel) {
    losses_.clear();
    log_norms_.clear();
    spikes_in_a_row_ = 0;
  }
  return report;
}

Json Guard::state() const {
  return {{"losses", std::vector<double>(losses_.begin(), losses_.end())},
          {"log_norms", std::vector<double>(log_norms_.begin(), log_norms_.end())},
          {"spikes_in_a_row", spikes_in_a_row_}};
}

void Guard::restore(const Json& state, const std::string& where) {
  std::deque<double> losses = read_window(state, "losses", where), norms = read_window(state, "log_norms", where);
  const int64_t spikes = json_int(state, "spikes_in_a_row", where);
  if (losses.size() != norms.size() || spikes < 0)
    fail(ErrorKind::input, "{}: expected as many losses as log_norms and a count of spikes, found {}, {} and {}", where,
         losses.size(), norms.size(), spikes);
  losses_ = std::move(losses);
  log_norms_ = std::move(norms);
  spikes_in_a_row_ = spikes;
}

}  // namespace rw
