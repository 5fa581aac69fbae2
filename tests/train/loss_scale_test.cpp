// The history of f16's loss scale: PyTorch's, the paper's rules, and the way through a checkpoint.
#include "libcore/train/loss_scale.h"

#include <doctest/doctest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "libcore/base/error.h"

using namespace rw;

TEST_CASE("the same overflows give the scales of torch.amp.GradScaler") {
  // torch 2.15, torch._amp_update_scale_ from 65536, growth 2, backoff 0.5, growth interval 3; 1 is an overflow.
  const std::string overflows = "0000001000010100110001010110110000001000";
  const std::vector<double> scales = {65536,  65536,  131072, 131072, 131072, 262144, 131072, 131072, 131072, 262144,
                                      262144, 131072, 131072, 65536,  65536,  65536,  32768,  16384,  16384,  16384,
                                      32768,  16384,  16384,  8192,   8192,   4096,   2048,   2048,   1024,   512,
                                      512,    512,    1024,   1024,   1024,   2048,   1024,   1024,   1024,   2048};
  LossScale scale(65536, 3);
  REQUIRE(overflows.size() == scales.size());
  for (size_t i = 0; i < scales.size(); ++i) {
    scale.observe(overflows[i] == '1');
    CAPTURE(i);
    CHECK(static_cast<double>(scale.scale()) == scales[i]);
  }
}

TEST_CASE("the defaults: 1,000 good steps double it, one overflow halves it and starts the count again") {
  LossScale scale(65536, 1000);
  CHECK(scale.scale() == 65536);
  for (int i = 0; i < 999; ++i) scale.observe(false);
  CHECK(scale.scale() == 65536);
  scale.observe(false);
  CHECK(scale.scale() == 131072);
  for (int i = 0; i < 999; ++i) scale.observe(false);
  scale.observe(true);
  CHECK(scale.scale() == 65536);
  for (int i = 0; i < 999; ++i) scale.observe(false);
  CHECK(scale.scale() == 65536);
  scale.observe(false);
  CHECK(scale.scale() == 131072);
}

TEST_CASE("it stays between 1 and what f32 holds") {
  LossScale low(3, 1);
  for (const float expected : {1.5f, 1.0f, 1.0f}) {
    low.observe(true);
    CHECK(low.scale() == expected);
  }
  low.observe(false);
  CHECK(low.scale() == 2.0f);
  LossScale high(0x1p126, 1);
  for (int i = 0; i < 3; ++i) high.observe(false);
  CHECK(high.scale() == 0x1p127f);  // as GradScaler, which does not grow into infinity either
}

TEST_CASE("through a checkpoint it goes on as if nothing had been") {
  const std::string overflows = "0010000100000000101";
  for (size_t cut = 0; cut <= overflows.size(); ++cut) {
    LossScale whole(1024, 4), before(1024, 4), after(1, 4);
    for (size_t i = 0; i < overflows.size(); ++i) {
      whole.observe(overflows[i] == '1');
      if (i < cut) before.observe(overflows[i] == '1');
    }
    after.restore(parse_json(before.state().dump(), "a checkpoint"), "a checkpoint");
    for (size_t i = cut; i < overflows.size(); ++i) after.observe(overflows[i] == '1');
    CHECK(after.scale() == whole.scale());
    CHECK(after.state() == whole.state());
  }
}

TEST_CASE("settings and states that are none") {
  CHECK_THROWS(LossScale(0.5, 1));
  CHECK_THROWS(LossScale(std::numeric_limits<double>::infinity(), 1));
  CHECK_THROWS(LossScale(std::numeric_limits<double>::quiet_NaN(), 1));
  CHECK_THROWS(LossScale(2, 0));
  LossScale scale(8, 2);
  for (const char* bad : {"{}", "[]", "null", R"({"scale": 4})", R"({"scale": 0, "good_steps": 0})",
                          R"({"scale": 1e300, "good_steps": 0})", R"({"scale": 4, "good_steps": -1})",
                          R"({"scale": "4", "good_steps": 1})"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(scale.restore(parse_json(bad, "x"), "x"), Error);
    CHECK(scale.scale() == 8);
  }
}
