#include "libcore/schedule/pipeline.h"
#include "libcore/schedule/replay.h"

namespace rw {

std::string check_actions(const PipelineShape& shape, const std::vector<std::vector<Action>>& of_stage) {
  return replay(shape, of_stage, nullptr).fault;
}

std::string check_schedule(const PipelineShape& shape) {
  std::vector<std::vector<Action>> of_stage;
  for (int s = 0; s < shape.stages; ++s) of_stage.push_back(pipeline_actions(shape, s));
  return check_actions(shape, of_stage);
}

}  // namespace rw
