#include <algorithm>
#include <map>
#include <tuple>

#include "libcore/base/check.h"
#include "libcore/schedule/pipeline.h"
#include "libcore/schedule/replay.h"

namespace rw {
namespace {

void check_times(const std::vector<std::vector<double>>& seconds, const PipelineShape& shape) {
  CHECK(static_cast<int>(seconds.size()) == shape.stages, "times of %zu stages, expected %d", seconds.size(),
        shape.stages);
  for (const std::vector<double>& chunks : seconds)
    CHECK(static_cast<int>(chunks.size()) == shape.chunks, "times of %zu chunks, expected %d", chunks.size(),
          shape.chunks);
}

double seconds_of(const Action& a, int stage, const StageTimes& times) {
  const auto of = [&](const std::vector<std::vector<double>>& seconds) {
    return seconds[static_cast<size_t>(stage)][static_cast<size_t>(a.chunk)];
  };
  switch (a.kind) {
    case ActionKind::forward: return of(times.forward);
    case ActionKind::backward: return of(times.backward_input) + of(times.backward_weight);
    case ActionKind::backward_input: return of(times.backward_input);
    case ActionKind::backward_weight: return of(times.backward_weight);
  }
  return 0;
}

Timeline timed(const PipelineShape& shape, const std::vector<std::vector<Action>>& of_stage, const ReplayTimes& times) {
  Replay result = replay(shape, of_stage, &times);
  CHECK(result.fault.empty(), "%s", result.fault.c_str());
  return std::move(result.timeline);
}

}  // namespace

Timeline time_actions(const PipelineShape& shape, const std::vector<std::vector<Action>>& of_stage,
                      const StageTimes& times) {
  for (const auto* seconds : {&times.forward, &times.backward_input, &times.backward_weight})
    check_times(*seconds, shape);
  ReplayTimes each{.of_stage = {}, .message = times.message};
  for (int s = 0; s < static_cast<int>(of_stage.size()); ++s) {
    each.of_stage.emplace_back();
    for (const Action& a : of_stage[static_cast<size_t>(s)]) each.of_stage.back().push_back(seconds_of(a, s, times));
  }
  return timed(shape, of_stage, each);
}

Timeline time_again(const PipelineShape& shape, const std::vector<std::vector<TimedAction>>& measured, double message) {
  ReplayTimes each{.of_stage = {}, .message = message};
  std::vector<std::vector<Action>> of_stage;
  for (const std::vector<TimedAction>& stage : measured) {
    of_stage.emplace_back();
    each.of_stage.emplace_back();
    for (const TimedAction& a : stage) {
      of_stage.back().push_back(a.action);
      each.of_stage.back().push_back(a.end - a.begin);
    }
  }
  return timed(shape, of_stage, each);
}

double message_seconds(const PipelineShape& shape, const std::vector<std::vector<TimedAction>>& measured) {
  std::map<std::tuple<int, int, bool>, double> sent;  // virtual stage that it is for, micro-batch, forward
  const auto is_weight = [](const Action& a) { return a.kind == ActionKind::backward_weight; };
  const auto key = [&](size_t stage, const Action& a, int step) {
    const bool forward = a.kind == ActionKind::forward;
    return std::tuple(a.chunk * shape.stages + static_cast<int>(stage) + (forward ? step : -step), a.micro_batch,
                      forward);
  };
  for (size_t s = 0; s < measured.size(); ++s)
    for (const TimedAction& a : measured[s])
      if (!is_weight(a.action)) sent[key(s, a.action, 1)] = a.end;
  std::vector<double> waits;
  for (size_t s = 0; s < measured.size(); ++s)
    for (size_t i = 0; i < measured[s].size(); ++i) {
      const TimedAction& a = measured[s][i];
      const auto from = sent.find(key(s, a.action, 0));
      if (is_weight(a.action) || from == sent.end() || shape.stages == 1) continue;
      // Only where the stage stood ready when its message was sent does the message alone decide when it begins.
      if (i > 0 && measured[s][i - 1].end > from->second) continue;
      waits.push_back(a.begin - from->second);
    }
  if (waits.empty()) return 0;
  std::nth_element(waits.begin(), waits.begin() + static_cast<int64_t>(waits.size() / 2), waits.end());
  return waits[waits.size() / 2];
}

Timeline time_schedule(const PipelineShape& shape, const StageTimes& times) {
  std::vector<std::vector<Action>> of_stage;
  for (int s = 0; s < shape.stages; ++s) of_stage.push_back(pipeline_actions(shape, s));
  return time_actions(shape, of_stage, times);
}

}  // namespace rw
