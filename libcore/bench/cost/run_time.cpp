#include "libcore/bench/cost/run_time.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "libcore/base/json.h"
#include "libcore/base/median.h"

namespace rw {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

double number_of(const EventRecord& event, const char* key) {
  const Json line = Json::parse(event.line, nullptr, false);
  if (!line.is_object()) return kUnknown;
  const auto at = line.find(key);
  return at != line.end() && at->is_number() ? at->get<double>() : kUnknown;
}

bool begins(const EventRecord& e) { return e.event == "start" || e.event == "resume"; }

// One life of the job: from its start event to the last that was heard of it.
struct Attempt {
  double begin_s = 0, end_s = 0;
  int64_t first_step = 0, last_step = 0;  // computed
};

std::vector<Attempt> attempts_of(const RunRecords& run) {
  std::vector<Attempt> attempts;
  for (const EventRecord& e : run.events) {
    const double at = utc_seconds(e.time);
    if (!std::isfinite(at)) continue;
    if (begins(e) || attempts.empty()) {
      const int64_t step = std::max<int64_t>(0, e.step);
      attempts.push_back({.begin_s = at, .end_s = at, .first_step = step, .last_step = step});
      continue;
    }
    attempts.back().end_s = std::max(attempts.back().end_s, at);
    if (e.event == "rewind") attempts.back().last_step = e.step;
    else attempts.back().last_step = std::max(attempts.back().last_step, e.step);
  }
  for (const ResourceRecord& r : run.resources) {
    const double at = utc_seconds(r.time);
    // Of the attempt that began last before it.
    const auto after = std::upper_bound(attempts.begin(), attempts.end(), at,
                                        [](double t, const Attempt& a) { return t < a.begin_s; });
    if (!std::isfinite(at) || after == attempts.begin()) continue;
    Attempt& a = *std::prev(after);
    a.end_s = std::max(a.end_s, at);
    a.last_step = std::max(a.last_step, r.step - 1);  // the record names the step under way
  }
  return attempts;
}

double finite(double v) { return std::isfinite(v) ? v : 0; }

}  // namespace

double utc_seconds(const std::string& time) {
  int year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0, read = 0;
  if (time.size() != 20 ||
      std::sscanf(time.c_str(), "%4d-%2d-%2dT%2d:%2d:%2dZ%n", &year, &month, &day, &hour, &minute, &second, &read) !=
          6 ||
      read != 20)
    return kUnknown;
  const std::chrono::year_month_day date{std::chrono::year(year), std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (!date.ok() || hour > 23 || minute > 59 || second > 60) return kUnknown;
  const auto days = std::chrono::sys_days(date).time_since_epoch().count();
  return static_cast<double>(days) * 86400 + hour * 3600 + minute * 60 + second;
}

RunTime run_time(const RunRecords& run) {
  RunTime t;
  std::vector<double> usual;
  double step_sum = 0, stall_of_steps = 0, stall_told = 0, stall_of_attempt = 0;
  for (const StepRecord& s : run.steps) {
    const double seconds = finite(s.step_s), waited = std::min(finite(s.second(TimeCategory::data)), seconds);
    step_sum += seconds;
    ++t.steps;
    if (seconds > 0) usual.push_back(seconds);
    // The stall of a save lies between two steps, outside step_s.
    stall_of_steps += finite(s.second(TimeCategory::checkpoint));
    if (s.skipped) {
      ++t.skipped_steps;
      t.skipped_s += seconds;
    } else {
      t.data_s += waited;
      t.productive_s += seconds - waited;
    }
  }
  // A run's last save comes after its last metrics line: events tell of all that an attempt waited for so far.
  for (const EventRecord& e : run.events) {
    if (begins(e)) stall_told += std::exchange(stall_of_attempt, 0);
    if (e.event == "checkpoint") stall_of_attempt = std::max(stall_of_attempt, finite(number_of(e, "stall_total_s")));
  }
  t.checkpoint_s = std::max(stall_of_steps, stall_told + stall_of_attempt);
  for (const EventRecord& e : run.events) {
    if (e.event == "validation") t.validation_s += finite(number_of(e, "seconds"));
    if (e.event != "rewind") continue;
    ++t.rewinds;
    const double from = number_of(e, "from_step");
    if (std::isfinite(from) && e.step >= 0) t.lost_steps += std::max<int64_t>(0, static_cast<int64_t>(from) - e.step);
  }
  const std::vector<Attempt> attempts = attempts_of(run);
  t.attempts = static_cast<int64_t>(attempts.size());
  t.from_events = !attempts.empty();
  double running_s = step_sum + t.checkpoint_s + t.validation_s;
  if (t.from_events) {
    running_s = 0;
    for (size_t i = 0; i < attempts.size(); ++i) {
      running_s += attempts[i].end_s - attempts[i].begin_s;
      if (i == 0) continue;
      t.down_s += std::max(0.0, attempts[i].begin_s - attempts[i - 1].end_s);
      t.lost_steps += std::max<int64_t>(0, attempts[i - 1].last_step - attempts[i].first_step);
    }
  }
  // Events tell whole seconds: a short run's steps may add up to more.
  const double known = step_sum + t.checkpoint_s + t.validation_s;
  running_s = std::max(running_s, known);
  t.lost_s = std::min(running_s - known, usual.empty() ? 0 : static_cast<double>(t.lost_steps) * median(usual));
  t.other_s = running_s - known - t.lost_s;
  t.wall_s = running_s + t.down_s;
  return t;
}

}  // namespace rw
