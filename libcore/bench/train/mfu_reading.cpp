#include "libcore/bench/train/mfu_reading.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace rw {
namespace {

std::string percent(double share) { return fmt::format("{:.0f} %", 100 * share); }

// "compute takes 84 % of the step, at 35 % of what its ops' roofline allows; communication 12 %"
std::string where_time_goes(const MfuFacts& f) {
  std::vector<std::pair<double, const char*>> parts = {{f.compute, "compute"},
                                                       {f.communication, "communication"},
                                                       {f.bubble, "the bubble"},
                                                       {f.data, "data"},
                                                       {f.checkpoint, "checkpoints"}};
  std::stable_sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string text;
  for (const auto& [share, name] : parts) {
    if (share < 0.005 && !text.empty()) continue;
    text += fmt::format("{}{} {}{}", text.empty() ? "" : "; ", name, text.empty() ? "takes " : "", percent(share));
    if (text.find("of the step") == std::string::npos) text += " of the step";
    if (std::string(name) == "compute" && std::isfinite(f.roofline))
      text += f.roofline <= 1 ? fmt::format(", at {} of what its ops' roofline allows", percent(f.roofline))
                              : ", faster than its ops' roofline: its data lies in the caches, or the peaks were "
                                "measured while others were on the machine";
  }
  return text;
}

}  // namespace

std::string mfu_reading(const MfuFacts& f) {
  const std::string mfu = fmt::format("MFU {:.1f} %", 100 * f.mfu);
  if (f.is_gpu && f.params >= kLargeModel) {
    if (f.mfu >= kGoodMfu) return mfu + ": good; large models on GPUs reach 45 to 55 %";
    if (f.mfu >= kWrongMfu) return mfu + ": fair; 45 to 55 % is good for a large model on GPUs: " + where_time_goes(f);
    return mfu + ": under 30 % something is wrong, for a large model on GPUs: " + where_time_goes(f);
  }
  return fmt::format("{}: large models on GPUs reach 45 to 55 %; {} is not held to that. What limits here: {}", mfu,
                     f.is_gpu ? "a model of this size" : "a CPU", where_time_goes(f));
}

}  // namespace rw
