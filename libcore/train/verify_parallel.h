// The self-test of a layout: the first steps of a run, on rank 0, also by a single rank in f32, tensor by tensor.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "libcore/tensor/source.h"
#include "libcore/train/step.h"

namespace rw {

// What the pieces of all ranks' f32 tensors come to, whole, on rank 0 (elsewhere empty). Collective over world.
std::unique_ptr<TensorSource> gather_tensors(Comm& world, const std::vector<TensorPiece>& pieces,
                                             const HostTensors& host);

struct TensorError {
  std::string name;
  double error;  // largest difference of a gradient, relative to the largest of its layer
};
struct ParallelReport {
  int64_t step = 0;
  double loss_error = 0, norm_error = 0;  // relative
  std::vector<TensorError> tensors;       // worst first
};

class ParallelCheck {
 public:
  // Collective. Rank 0 takes the memory of a whole model: weights as they are now, moments too.
  ParallelCheck(const StepSettings& settings, TrainStep& step, int threads);
  ~ParallelCheck();
  // After the step was run with `inputs` and gave `result`: the reference runs it too. Collective; the report is rank
  // 0's.
  ParallelReport compare(const StepInputs& inputs, const StepResult& result, const ReadSamples& read);

 private:
  struct Reference;
  TrainStep& step_;
  std::unique_ptr<Reference> reference_;  // on rank 0
};

}  // namespace rw
