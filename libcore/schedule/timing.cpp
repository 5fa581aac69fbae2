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

}  // namespace

Timeline time_actions(const PipelineShape& shape, const std::vector<std::vector<Action>>& of_stage,
                      const StageTimes& times) {
  for (const auto* seconds : {&times.forward, &times.backward_input, &times.backward_weight})
    check_times(*seconds, shape);
  Replay result = replay(shape, of_stage, &times);
  CHECK(result.fault.empty(), "%s", result.fault.c_str());
  return std::move(result.timeline);
}

Timeline time_schedule(const PipelineShape& shape, const StageTimes& times) {
  std::vector<std::vector<Action>> of_stage;
  for (int s = 0; s < shape.stages; ++s) of_stage.push_back(pipeline_actions(shape, s));
  return time_actions(shape, of_stage, times);
}

}  // namespace rw
