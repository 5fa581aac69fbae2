#include "libcore/train/predicted.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

using namespace rw;

TEST_CASE("predicted: what the table names stands beside the medians, the rest is left alone") {
  PredictedStep predicted(R"({"step-time-s": 0.5, "compute-s": 0.4, "bubble-s": 0, "memory-bytes": 1000,
                              "communication-s": "x", "mfu-full": 0.3})");
  CHECK_FALSE(predicted.empty());
  for (const double seconds : {40.0, 5.0, 6.0}) {
    StepClock clock;
    clock.start();
    clock.mark(TimeCategory::data);
    clock.move(TimeCategory::data, TimeCategory::compute, seconds);
    predicted.add(clock);
  }
  const Json beside = predicted.beside(1100);
  CHECK(beside["step_time_s"]["predicted"] == 0.5);
  CHECK(beside["compute_s"]["measured"].get<double>() == doctest::Approx(5.5));  // the first step is not among them
  CHECK(beside["compute_s"]["predicted"] == 0.4);
  CHECK(beside["bubble_s"]["ratio"].is_null());
  CHECK(beside["memory_bytes"]["ratio"].get<double>() == doctest::Approx(1.1));
  CHECK_FALSE(beside.contains("communication_s"));
  CHECK_FALSE(beside.contains("mfu_full"));
  const std::string text = PredictedStep::text(beside);
  CHECK(text.find("step 0.5 s predicted") == 0);
  CHECK(text.find("memory 1000 B predicted") != std::string::npos);
}

TEST_CASE("predicted: no table and a table without numbers compare nothing") {
  CHECK(PredictedStep("").empty());
  CHECK(PredictedStep(R"({"step-time-s": -1, "memory-bytes": []})").empty());
}

TEST_CASE("predicted: a plan for other ranks or another model says so") {
  ModelSpec model = load_model_spec("tiny-llama");
  const std::string identity = model_identity(model);
  CHECK(plan_mismatch("", model, 2) == "");
  CHECK(plan_mismatch("{}", model, 2) == "");
  const std::string plan = R"({"ranks": 2, "model-identity": ")" + identity + "\"}";
  CHECK(plan_mismatch(plan, model, 2) == "");
  CHECK(plan_mismatch(plan, model, 3) == "made for 2 ranks, here are 3");
  model.layers += 1;
  CHECK(plan_mismatch(plan, model, 2).find("another model") != std::string::npos);
  CHECK(plan_mismatch(R"({"ranks": "x"})", model, 2).find("made for") == 0);
}
