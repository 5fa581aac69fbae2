#include "libcore/telemetry/alerts.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "libcore/base/check.h"

namespace rw {

Alerts::Alerts(std::vector<AlertRule> rules) {
  for (AlertRule& rule : rules) {
    CHECK(rule.for_s >= 0, "alert %s: for_s is %g", rule.name.c_str(), rule.for_s);
    for (const State& known : states_) CHECK(known.rule.name != rule.name, "alert %s twice", rule.name.c_str());
    states_.push_back({.rule = std::move(rule)});
  }
}

std::optional<AlertEvent> Alerts::feed(double now_s, std::string_view name, double value) {
  const auto state = std::find_if(states_.begin(), states_.end(), [&](const State& s) { return s.rule.name == name; });
  if (state == states_.end() || std::isnan(value)) return std::nullopt;
  const bool above = value > state->rule.above;
  if (above && !state->raised && !state->turned_s) state->worst = value;
  if (above) state->worst = std::max(state->worst, value);
  if (above == state->raised) {
    state->turned_s.reset();
    return std::nullopt;
  }
  if (!state->turned_s) state->turned_s = now_s;
  if (now_s - *state->turned_s < state->rule.for_s) return std::nullopt;
  state->raised = above;
  return AlertEvent{.rule = state->rule,
                    .raised = above,
                    .value = value,
                    .worst = state->worst,
                    .since_s = *std::exchange(state->turned_s, std::nullopt)};
}

std::vector<std::string> Alerts::raised() const {
  std::vector<std::string> names;
  for (const State& state : states_)
    if (state.raised) names.push_back(state.rule.name);
  return names;
}

Json alert_json(const AlertEvent& event) {
  return {{"event", "alert"},         {"name", event.rule.name}, {"state", event.raised ? "raised" : "cleared"},
          {"value", event.value},     {"worst", event.worst},    {"above", event.rule.above},
          {"for_s", event.rule.for_s}};
}

}  // namespace rw
