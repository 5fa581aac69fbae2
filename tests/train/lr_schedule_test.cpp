#include "libcore/train/lr_schedule.h"

#include <doctest/doctest.h>

#include "libcore/base/error.h"

using namespace rw;

namespace {
TrainSpec spec_of(const char* schedule) {
  TrainSpec s;
  s.lr_schedule = schedule;
  s.lr = 1.0;
  s.min_lr = 0.1;
  s.steps = 110;
  s.warmup_steps = 10;
  return s;
}
}  // namespace

TEST_CASE("learning-rate schedules at hand-computed steps") {
  for (const char* schedule : {"cosine", "linear", "wsd", "constant"}) {
    const TrainSpec s = spec_of(schedule);
    CHECK(lr_at(s, 1.0, 1) == doctest::Approx(0.1));
    CHECK(lr_at(s, 1.0, 10) == doctest::Approx(1.0));
  }
  CHECK(lr_at(spec_of("cosine"), 1.0, 60) == doctest::Approx(0.55));  // half way: the mean of peak and minimum
  CHECK(lr_at(spec_of("cosine"), 1.0, 110) == doctest::Approx(0.1));
  CHECK(lr_at(spec_of("cosine"), 1.0, 35) == doctest::Approx(0.1 + 0.9 * 0.5 * (1 + 0.70710678)));
  CHECK(lr_at(spec_of("linear"), 1.0, 60) == doctest::Approx(0.55));
  CHECK(lr_at(spec_of("linear"), 1.0, 110) == doctest::Approx(0.1));
  CHECK(lr_at(spec_of("wsd"), 1.0, 88) == doctest::Approx(1.0));  // 22 steps of decay
  CHECK(lr_at(spec_of("wsd"), 1.0, 99) == doctest::Approx(0.55));
  CHECK(lr_at(spec_of("wsd"), 1.0, 110) == doctest::Approx(0.1));
  CHECK(lr_at(spec_of("constant"), 1.0, 110) == doctest::Approx(1.0));
  TrainSpec custom = spec_of("wsd");
  custom.decay_steps = 50;
  CHECK(lr_at(custom, 1.0, 85) == doctest::Approx(0.55));
  TrainSpec none = spec_of("cosine");
  none.warmup_steps = 0;
  CHECK(lr_at(none, 1.0, 55) == doctest::Approx(0.55));
}

TEST_CASE("the batch rule scales the peak") {
  TrainSpec s = spec_of("cosine");
  s.lr_base_batch = 8;
  CHECK(batch_scaled_lr(s, 32) == doctest::Approx(1.0));
  s.lr_batch_rule = "linear";
  CHECK(batch_scaled_lr(s, 32) == doctest::Approx(4.0));
  s.lr_batch_rule = "sqrt";
  CHECK(batch_scaled_lr(s, 32) == doctest::Approx(2.0));
}

TEST_CASE("settings that contradict each other are refused with both flags") {
  TrainSpec s;
  const auto message = [](const TrainSpec& spec) -> std::string {
    try {
      check_train_spec(spec);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  CHECK(message(s).find("--model is missing") == 0);
  s.model = "m";
  CHECK(message(s).find("--data is missing") == 0);
  s.data = {"d.h5"};
  CHECK(message(s).find("--out is missing") == 0);
  s.out = "o";
  CHECK(message(s) == "");
  s.min_lr = 1;
  CHECK(message(s).find("--min-lr = 1 is above --lr") == 0);
  s.min_lr = 0;
  s.lr_batch_rule = "linear";
  CHECK(message(s).find("needs --lr-base-batch") != std::string::npos);
  s.lr_base_batch = 4;
  s.val_data = {"v"};
  s.val_fraction = 0.1;
  CHECK(message(s).find("exclude each other") != std::string::npos);
  TrainSpec a, b;
  b.out = "elsewhere";
  b.threads = 7;
  CHECK(hyper_parameter_hash(a) == hyper_parameter_hash(b));
  b.lr = 1e-5;
  CHECK(hyper_parameter_hash(a) != hyper_parameter_hash(b));
}
