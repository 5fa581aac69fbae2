#include "libcore/plan/search/plan_file.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "libcore/base/error.h"
#include "libcore/plan/draw/planned_schedule.h"

using namespace rw;

namespace {

// 4 layers of tiny-llama dealt by hand to two stages; learning rate and data are dtrain's business.
constexpr const char* kPlan =
    "model = \"tiny-llama\"\nprecision = \"f32\"\nseq-len = 32\nglobal-batch = 12\nmicro-batch = 2\ntp = 1\npp = 2\n"
    "dp = 1\nzero = 1\nrecompute = \"full\"\nrecompute-layers = 1\nschedule = \"1f1b\"\nlr = 1e-4\n"
    "[plan]\nnodes = 1\n[predicted]\nstep-time-s = 3.5\n";

std::string message_of(const std::string& text) {
  PlanSpec spec;
  try {
    read_plan_file(spec, text, "plan.toml");
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

PlanSpec read(const std::string& text) {
  PlanSpec spec;
  spec.cluster = "cpu-2core";
  read_plan_file(spec, text, "plan.toml");
  return spec;
}

}  // namespace

TEST_CASE("a plan file becomes pins, and the pins its layout") {
  const PlanSpec spec = read(kPlan);
  CHECK(spec.nodes == 1);
  CHECK(spec.precision == "f32");
  CHECK(spec.zero == "1");
  const PlanInputs inputs(spec);
  const Layout layout = pinned_layout(inputs, "");
  CHECK(layout.pp == 2);
  CHECK(layout.dp == 1);
  CHECK(layout.zero == 1);
  CHECK(layout.micro_batches() == 6);
  CHECK(layout.seq_len == 32);
  CHECK(layout.recompute == Recompute::full);
  CHECK(layout.recompute_layers == 1);
}

TEST_CASE("stage-layers of a file hold; dp auto fills the cluster; too few devices are refused") {
  PlanSpec spec = read(kPlan);
  const PlanInputs inputs(spec);
  const int64_t layers = inputs.model().layers;
  const Layout layout = pinned_layout(inputs, "1," + std::to_string(layers - 1));
  CHECK(layout.stage_layers == std::vector<int64_t>{1, layers - 1});
  spec.pp = 1;
  spec.dp = 0;
  CHECK(pinned_layout(PlanInputs(spec), "").dp == 2);
  spec.dp = 3;
  CHECK_THROWS_AS(pinned_layout(PlanInputs(spec), ""), Error);
}

TEST_CASE("what dtrain would refuse, and what plans nothing, is refused") {
  CHECK(message_of("sequence-len = 3\n").find("unknown key \"sequence-len\"") != std::string::npos);
  CHECK(message_of("model = \"tiny-llama\"\nseq-len = 32\n").find("global-batch") != std::string::npos);
}

TEST_CASE("a file is priced as it stands, and its pipeline drawn in bytes") {
  const PlanInputs inputs(read(kPlan));
  const Prediction plan = chosen_plan(inputs, {.from_file = true, .stage_layers = "", .keep_timeline = true});
  CHECK(plan.layout.pp == 2);
  CHECK(plan.step_s > 0);
  const ScheduleView view = planned_schedule(inputs, plan);
  CHECK(view.shape.stages == 2);
  CHECK(view.shape.micro_batches == 6);
  CHECK(view.in_bytes);
  // A stage's fullest moment is its memory in closed form; of the worst stage that is the prediction's.
  CHECK(peak_memory(view, static_cast<int>(plan.worst_stage)) == doctest::Approx(plan.memory.total()));
  CHECK_FALSE(known_bubble(view).has_value());
}

TEST_CASE("a file without a micro-batch: dtrain's where it divides the batch, else one sample") {
  std::string text = kPlan;
  text.replace(text.find("micro-batch = 2\n"), 16, "");
  PlanSpec spec = read(text);
  CHECK(spec.micro_batch == 0);
  CHECK(pinned_layout(PlanInputs(spec), "").micro_batch == 1);  // of 12
  spec.global_batch = 24;
  CHECK(pinned_layout(PlanInputs(spec), "").micro_batch == 8);
  spec.dp = 7;
  CHECK_THROWS_WITH_AS(pinned_layout(PlanInputs(spec), ""), doctest::Contains("give --nodes 7 or more"), Error);
}

TEST_CASE("no pipeline, no picture") {
  PlanSpec spec = read(kPlan);
  spec.pp = 1;
  const PlanInputs inputs(spec);
  const Prediction plan = chosen_plan(inputs, {.from_file = true, .stage_layers = "", .keep_timeline = true});
  try {
    planned_schedule(inputs, plan);
    FAIL("expected an error");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::usage);
    CHECK(std::string(e.what()).find("--pp") != std::string::npos);
  }
}

TEST_CASE("without a file the best plan that the pins allow is chosen") {
  PlanSpec spec;
  spec.model = "tiny-llama";
  spec.cluster = "cpu-2core";
  spec.precision = "f32";
  spec.global_batch = 8;
  spec.seq_len = 16;
  spec.pp = 2;
  const Prediction plan = chosen_plan(PlanInputs(spec), {});
  CHECK(plan.layout.pp == 2);
  CHECK(plan.layout.global_batch == 8);
  spec.cluster = "h100-sxm";
  spec.nodes = 1;
  spec.max_memory = 4096;
  try {
    chosen_plan(PlanInputs(spec), {});
    FAIL("expected an error");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::verdict);
  }
}
