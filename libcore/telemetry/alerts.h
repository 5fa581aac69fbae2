// Alerts: a value that stays beyond its threshold. Pure: time is an argument.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "libcore/base/json.h"

namespace rw {

struct AlertRule {
  std::string name;   // "kv_usage"
  double above;       // in the value's own unit
  double for_s = 10;  // raised when above for that long, cleared when not above for as long
};

struct AlertEvent {
  AlertRule rule;
  bool raised;     // or cleared
  double value;    // the one that made it so
  double worst;    // the largest since the value first went above
  double since_s;  // when it went above (raised) or below (cleared), by the caller's clock
};

class Alerts {
 public:
  explicit Alerts(std::vector<AlertRule> rules);
  // `now_s` never goes back. A NaN says nothing. A name without a rule is no alert.
  std::optional<AlertEvent> feed(double now_s, std::string_view name, double value);
  std::vector<std::string> raised() const;  // now

 private:
  struct State {
    AlertRule rule;
    bool raised = false;
    std::optional<double> turned_s;  // since when the value has been on the other side
    double worst = 0;
  };
  std::vector<State> states_;
};

// {"event": "alert", "name", "state": "raised" | "cleared", "value", "worst", "above", "for_s"}: a line of
// events.jsonl.
Json alert_json(const AlertEvent& event);

}  // namespace rw
