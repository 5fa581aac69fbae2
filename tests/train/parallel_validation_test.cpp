// The validation loss is the same in every layout, for full and for partial batches.
#include <doctest/doctest.h>

#include <mutex>
#include <vector>

#include "tests/support/parallel_run.h"

using namespace rw;
using namespace rw::parallel;

namespace {

// After a step of training, the sums over the first 1, 2, ... samples of a held-out batch, by each data-parallel rank.
std::vector<std::vector<double>> held_out_losses(Case c) {
  c.steps = 1;
  std::vector<std::vector<double>> of_dp(static_cast<size_t>(c.layout.dp));
  std::mutex mutex;
  train(c, [&](TrainStep& step) {
    const int64_t n = c.layout.micro_batch, seq_len = c.layout.seq_len;
    std::vector<int32_t> ids(static_cast<size_t>(n * seq_len)), targets(ids.size());
    reader(c)(1000, n, ids.data(), targets.data());
    std::vector<double> losses;
    for (int64_t samples = 1; samples <= n; ++samples) {
      const double sum = step.evaluate(ids.data(), targets.data(), samples);
      losses.push_back(step.mesh().pp_backward->all_reduce_value(sum, ReduceOp::sum));
    }
    const std::lock_guard lock(mutex);
    auto& mine = of_dp[static_cast<size_t>(step.mesh().place.dp)];
    if (mine.empty()) mine = losses;
    CHECK(mine == losses);  // tensor-parallel ranks and stages agree
  });
  return of_dp;
}

}  // namespace

TEST_CASE("validation in every layout sees one rank's loss") {
  for (const std::string family : {"gpt2", "llama", "qwen2"}) {
    Case c{.model = family_model(family), .layout = base_layout()};
    c.layout.micro_batch = 3;
    c.layout.global_batch = 18;
    c.layout.seq_len = 11;
    const std::vector<double> expected = held_out_losses(c)[0];
    REQUIRE(expected[2] > expected[1]);
    const auto check = [&](auto change) {
      Case split = c;
      change(split.layout);
      const std::string text = family + ", " + split.layout.text();
      CAPTURE(text);
      for (const auto& losses : held_out_losses(split))
        for (size_t i = 0; i < expected.size(); ++i) CHECK(losses[i] == doctest::Approx(expected[i]).epsilon(2e-6));
    };
    check([](Layout& l) { l.tp = 4, l.sp = true; });
    check([](Layout& l) { l.tp = 2, l.dp = 2, l.zero = 3; });
    check([](Layout& l) { l.pp = 4, l.dp = 2, l.zero = 1; });
    check([](Layout& l) { l.pp = 2, l.vpp = 2, l.schedule = ScheduleKind::interleaved, l.tp = 2, l.sp = true; });
    check([](Layout& l) { l.pp = 2, l.schedule = ScheduleKind::zb_h1, l.recompute = Recompute::full, l.zero = 3; });
    check([](Layout& l) { l.vpp = 2, l.schedule = ScheduleKind::gpipe; });
  }
}
