// Looks at each step's loss and gradient norm before the update is made, and says what should happen.
#pragma once
#include <cstdint>
#include <deque>
#include <string>

#include "libcore/base/json.h"

namespace rw {

enum class Verdict : uint8_t { ok, loss_spike, norm_spike, not_finite };
const char* verdict_name(Verdict v);  // "ok", "loss_spike", ...

enum class SpikePolicy : uint8_t { warn, skip, rewind };
SpikePolicy spike_policy(const std::string& name);  // of --on-spike

// What the trainer is to do. skip: no update from this step. rewind: back to the last checkpoint, without the batches
// since then.
enum class GuardAction : uint8_t { go_on, warn, skip, rewind };

struct GuardSettings {
  SpikePolicy policy = SpikePolicy::warn;
  double threshold = 8;  // deviations above the median that make a spike; 0: none is one
};

struct GuardReport {
  int64_t step = 0;
  Verdict verdict = Verdict::ok;
  GuardAction action = GuardAction::go_on;
  // Of the value that was judged (the norm for norm_spike, otherwise the loss); deviations are 0 during warm-up.
  double value = 0, median = 0, deviations = 0;
};

// Pure: no clock, no communication; the same values give the same reports on every rank. A spike lies more than
// `threshold` deviations above the median of the last kWindow accepted values, where a deviation is 1.4826 times the
// median absolute deviation (a Gaussian's sigma; Hampel 1974), at least the floors below. Norms are judged by their
// logarithms: they vary by factors. What is a spike or not finite does not enter the window. Nothing is judged before
// kWarmUp values are known. kNewLevel spikes in a row are no spikes but a new level: the window starts afresh. While
// the loss falls fast its window is wide, and only large spikes stand out.
class Guard {
 public:
  static constexpr size_t kWindow = 64, kWarmUp = 20;
  static constexpr int64_t kNewLevel = 20;
  // The least deviation of a loss, relative to the median and absolute (nats), and of a norm's logarithm (5 %).
  static constexpr double kLossRelativeFloor = 0.005, kLossFloor = 1e-3, kLogNormFloor = 0.05;
  static constexpr double kLeastNorm = 1e-6;  // smaller norms count as this

  explicit Guard(const GuardSettings& settings) : settings_(settings) {}

  // A step that is not finite is always skipped. A norm that jumps is at most skipped: clipping or leaving out this one
  // update keeps the weights good, while a loss that jumps says that they no longer are.
  GuardReport observe(int64_t step, double loss, double grad_norm);

  Json state() const;  // for the checkpoint: {"losses", "log_norms", "spikes_in_a_row"}
  // Error{input} names `where` and the key that is missing or of another kind.
  void restore(const Json& state, const std::string& where);

 private:
  GuardSettings settings_;
  std::deque<double> losses_, log_norms_;  // accepted (norms: their logarithms), oldest first; equally many
  int64_t spikes_in_a_row_ = 0;
};

}  // namespace rw
