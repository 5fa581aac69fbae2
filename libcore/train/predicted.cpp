#include "libcore/train/predicted.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "libcore/base/median.h"
#include "libcore/base/units.h"

namespace rw {
namespace {

constexpr size_t kMostSteps = 4096;  // that a median is taken of
constexpr const char* kStep = "step-time-s";

// Without the first, where there are others.
double usual(std::vector<double> seconds) {
  if (seconds.size() > 1) seconds.erase(seconds.begin());
  return median(std::move(seconds));
}

std::string json_key(std::string key) {
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

Json pair(double predicted, double measured) {
  return {{"predicted", predicted},
          {"measured", measured},
          {"ratio", predicted > 0 ? Json(measured / predicted) : Json(nullptr)}};
}

}  // namespace

std::string plan_mismatch(const std::string& table, const ModelSpec& model, int64_t ranks) {
  if (table.empty()) return "";
  const Json plan = Json::parse(table);
  if (const auto at = plan.find("ranks"); at != plan.end() && *at != ranks)
    return fmt::format("made for {} ranks, here are {}", at->dump(), ranks);
  if (const auto at = plan.find("model-identity"); at != plan.end() && *at != model_identity(model))
    return fmt::format("made for another model ({}, here is {})", at->dump(), model_identity(model));
  return "";
}

PredictedStep::PredictedStep(const std::string& table) {
  if (table.empty()) return;
  const Json predicted = Json::parse(table);
  const auto number = [&](const std::string& key) {
    const auto at = predicted.find(key);
    return at != predicted.end() && at->is_number() ? at->template get<double>() : -1.0;
  };
  std::vector<std::string> keys = {kStep};
  for (const TimeCategory c : {TimeCategory::compute, TimeCategory::communication, TimeCategory::bubble})
    keys.push_back(std::string(time_category_name(c)) + "-s");
  for (const std::string& key : keys)
    if (const double v = number(key); v >= 0) entries_.push_back({key, v, {}});
  memory_ = number("memory-bytes");
}

PredictedStep::Entry* PredictedStep::entry(const std::string& key) {
  for (Entry& e : entries_)
    if (e.key == key) return &e;
  return nullptr;
}

void PredictedStep::add(const StepClock& clock) {
  if (Entry* e = entry(kStep); e != nullptr && e->measured.size() < kMostSteps) e->measured.push_back(clock.total());
  for (int c = 0; c < static_cast<int>(TimeCategory::n_categories); ++c) {
    const auto category = static_cast<TimeCategory>(c);
    Entry* e = entry(std::string(time_category_name(category)) + "-s");
    if (e != nullptr && e->measured.size() < kMostSteps) e->measured.push_back(clock.seconds(category));
  }
}

Json PredictedStep::beside(double memory_bytes) const {
  Json out = Json::object();
  for (const Entry& e : entries_)
    if (!e.measured.empty()) out[json_key(e.key)] = pair(e.predicted, usual(e.measured));
  if (memory_ >= 0) out["memory_bytes"] = pair(memory_, memory_bytes);
  return out;
}

std::string PredictedStep::text(const Json& beside) {
  std::string out;
  for (const auto& [key, value] : beside.items()) {
    const double predicted = value["predicted"], measured = value["measured"];
    const bool bytes = key == "memory_bytes";
    const std::string name = bytes ? "memory" : key == "step_time_s" ? "step" : key.substr(0, key.rfind("_s"));
    const auto text = [&](double v) { return bytes ? format_bytes(v) : fmt::format("{:.4g} s", v); };
    const std::string part =
        fmt::format("{} {} predicted, {} measured{}", name, text(predicted), text(measured),
                    predicted > 0 ? fmt::format(" ({:+.1f} %)", 100 * (measured / predicted - 1)) : "");
    out = name == "step" ? part + (out.empty() ? "" : "; " + out) : out + (out.empty() ? "" : "; ") + part;
  }
  return out;
}

}  // namespace rw
