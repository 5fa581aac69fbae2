// A model served without an engine: scheduler and model runners on thread ranks, for laws about what comes out.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "libcore/serve/model_runner.h"
#include "libcore/serve/scheduler.h"

namespace rw::test {

struct ServedWish {
  std::vector<int32_t> prompt;
  int64_t max_tokens;
  SamplingParams sampling = {.temperature = 0};
  int64_t prompt_logprobs = -1;
  int64_t arrives = 0;  // before this step
};
struct Served {
  std::vector<std::vector<Sampled>> drawn, prompt;  // by wish
  SchedulerStats stats;
  int64_t steps = 0;
  std::vector<std::vector<int32_t>> ids() const {
    std::vector<std::vector<int32_t>> all;
    for (const auto& d : drawn) {
      all.emplace_back();
      for (const Sampled& s : d) all.back().push_back(s.id);
    }
    return all;
  }
};

struct ServedSpec {
  RunnerSpec runner;
  SchedulerSpec scheduler;
  int tp = 1;
  bool on_cpu = false;  // whatever these tests are compiled for
};
// Pages, block size, sequences and tokens of a step are the scheduler's, for both.
Served serve_all(ServedSpec spec, const TensorSource& weights, const std::vector<ServedWish>& wishes);

// Random weights of any model, the same in every layout.
class RandomWeights final : public TensorSource {
 public:
  RandomWeights(const ModelSpec& spec, uint64_t seed);
  std::string where() const override { return "random weights"; }
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  void read(const std::string& name, const Box& box, DType dst_type, void* dst) const override;

 private:
  ParamLayout layout_;
  std::vector<float> values_;
  std::vector<TensorInfo> tensors_;
};

}  // namespace rw::test
