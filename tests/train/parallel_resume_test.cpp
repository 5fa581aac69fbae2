// A run that is saved in one layout goes on in another as if nothing had happened.
#include <doctest/doctest.h>

#include <atomic>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "libcore/ckpt/checkpoint.h"
#include "libcore/train/train_state.h"
#include "tests/ckpt/scratch_dir.h"
#include "tests/support/parallel_run.h"

using namespace rw;
using namespace rw::parallel;

namespace {

struct Part {
  std::optional<std::filesystem::path> from, copy_to;  // a checkpoint to start from; where to save it again at once
  int64_t first = 0, last = 0;                         // steps
  std::filesystem::path to;                            // where to save at the end
};

void save(TrainStep& step, int64_t at, const std::filesystem::path& dir) {
  save_checkpoint(dir, at, checkpoint_pieces(step), Json::object(), Json{{"updates", step.optimizer().steps_taken()}},
                  *step.mesh().world);
}

Curve run_part(const Case& c, const Part& part) {
  std::mutex mutex;
  Curve result;
  run_thread_ranks(static_cast<int>(c.layout.ranks()), [&](Comm& world) {
    world.set_timeout(60);
    const auto record = std::make_shared<CommRecord>();
    Mesh mesh = make_mesh(world, mesh_shape_of(c), record);
    Arena arena;
    TrainStep step(settings_of(c), exec_of(c), mesh, record, arena);
    if (part.from) {
      const Checkpoint checkpoint(*part.from);
      load_params(step, checkpoint, Load::weights_and_moments);
      step.optimizer().set_steps_taken(checkpoint.state().at("updates").get<int64_t>());
      save(step, part.first, *part.copy_to);
    } else {
      initialise(step, c);
    }
    const Curve curve = run_steps(step, c, part.first, part.last);
    save(step, part.last, part.to);
    const std::lock_guard lock(mutex);
    result = curve;
  });
  return result;
}

Tensors read_all(const std::filesystem::path& dir) {
  const Checkpoint checkpoint(dir);
  Tensors all;
  for (const TensorInfo& t : checkpoint.tensors()) {
    std::vector<float>& data = all[t.name];
    data.resize(static_cast<size_t>(n_elements(t.shape)));
    checkpoint.read(t.name, whole(t.shape), DType::f32, data.data());
  }
  return all;
}

void append(Curve& curve, const Curve& part) {
  curve.losses.insert(curve.losses.end(), part.losses.begin(), part.losses.end());
  curve.grad_norms.insert(curve.grad_norms.end(), part.grad_norms.begin(), part.grad_norms.end());
}

}  // namespace

TEST_CASE("a run saved in one layout goes on in another and comes back") {
  for (const std::string family : {"gpt2", "llama", "qwen2"}) {
    CAPTURE(family);
    const Case alone{.model = family_model(family), .layout = base_layout(), .steps = 8};
    Case a = alone, b = alone;
    a.layout.tp = a.layout.pp = a.layout.dp = 2;
    a.layout.zero = 1;
    b.layout.pp = 4;
    b.layout.zero = 3;
    ScratchDir scratch;
    const auto dir = [&](const char* name, int64_t step) {
      return scratch / name / ("step-0000000" + std::to_string(step));
    };

    Curve curve = run_part(a, {.from = {}, .copy_to = {}, .first = 0, .last = 3, .to = scratch / "a"});
    append(
        curve,
        run_part(b, {.from = dir("a", 3), .copy_to = scratch / "a again", .first = 3, .last = 6, .to = scratch / "b"}));
    append(
        curve,
        run_part(a, {.from = dir("b", 6), .copy_to = scratch / "b again", .first = 6, .last = 8, .to = scratch / "c"}));

    const Tensors saved = read_all(dir("a", 3));
    CHECK(saved.size() == 3 * param_table(alone.model).size());
    CHECK(difference(saved, read_all(dir("a again", 3))) == "");
    CHECK(difference(read_all(dir("b", 6)), read_all(dir("b again", 6))) == "");
    CHECK(difference(saved, read_all(dir("b", 6))) != "");
    const double ratio = worst_ratio(curve, train(alone), rounding_bound(alone));
    CHECK(ratio <= 1);
    MESSAGE(family << ": the worst is " << ratio << " of the bound");
  }
}

// Without a change of layout there is no rounding either.
TEST_CASE("a run that is saved and resumed in its own layout keeps its bits") {
  Case c{.model = family_model("qwen2"), .layout = base_layout(), .steps = 4};
  c.layout.tp = 4;
  c.layout.sp = true;
  c.layout.dp = 2;
  c.layout.zero = 3;
  ScratchDir scratch;
  Curve curve = run_part(c, {.from = {}, .copy_to = {}, .first = 0, .last = 2, .to = scratch / "a"});
  append(curve, run_part(c, {.from = scratch / "a" / "step-00000002",
                             .copy_to = scratch / "again",
                             .first = 2,
                             .last = 4,
                             .to = scratch / "b"}));
  const Trained straight = train_whole(c);
  CHECK(curve == straight.curve);
  CHECK(difference(read_all(scratch / "b" / "step-00000004"), straight.tensors) == "");
}
