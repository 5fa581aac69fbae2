// Small models of every family, trained for a few steps in any layout, on ranks that are threads or processes.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "libcore/train/step.h"
#include "tests/support/test_rank.h"

namespace rw::parallel {

// "gpt2", "llama", "qwen2": 9 layers, 4 heads, 4, 2 and 1 key/value heads; the first and last have a tied head.
ModelSpec family_model(const std::string& family);

struct Case {
  ModelSpec model;
  Layout layout;  // sizes of the batch included; stage_layers may be empty: dealt
  DType t = DType::f32;
  int64_t steps = 5, ranks_per_node = 0;  // 0: all on one
  double lr = 3e-3, clip_norm = 1.0;
  std::string device = "cpu";
  int64_t nudge = 0;  // 0: initial weights as they are; otherwise each moves by one ulp of t up or down, by this seed
};
// A layout of 16 samples of 13 tokens, micro-batches of 1, on one rank.
Layout base_layout();
Layout dealt(const Layout& layout, const ModelSpec& model);  // stage_layers filled in

struct Curve {
  std::vector<double> losses, grad_norms;
  bool operator==(const Curve&) const = default;
};
StepSettings settings_of(const Case& c);
MeshShape mesh_shape_of(const Case& c);
Exec exec_of(const Case& c);
// Tokens are random, targets are the next tokens with a ragged part of each sample ignored.
ReadSamples reader(const Case& c);
void initialise(TrainStep& step, const Case& c);
// Steps [first, last) with whatever weights are there.
Curve run_steps(TrainStep& step, const Case& c, int64_t first, int64_t last);

// This rank's part of a run of c.steps steps. `after` is called at the end.
Curve train_rank(Comm& world, const Case& c, const std::function<void(TrainStep&)>& after = {});
// On layout.ranks() threads; throws when the ranks do not agree. `after` is called on each rank.
Curve train(const Case& c, const std::function<void(TrainStep&)>& after = {});

// Weights and both moments, whole, by name ("adam.m/..." as in checkpoints), put together from all ranks' boxes.
using Tensors = std::map<std::string, std::vector<float>>;
struct Trained {
  Curve curve;
  Tensors tensors;
};
Trained train_whole(const Case& c);
// "" when both hold the same names and bits; otherwise the first difference.
std::string difference(const Tensors& a, const Tensors& b);

// By step, 8 times the largest difference so far among five single-rank runs whose weights start one ulp apart.
Curve rounding_bound(Case c);
// Each step's loss and norm against the bound; the worst ratio. In f32 step 1 is held within 1e-5 relative as well.
double worst_ratio(const Curve& got, const Curve& expected, const Curve& bound);
bool first_step_close(const Curve& got, const Curve& expected);

}  // namespace rw::parallel
