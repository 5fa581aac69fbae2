// f16 with overflows planted at known steps: those are skipped and no others, on all ranks alike, and leave no trace
// but in the scale.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <vector>

#include "libcore/train/loss_scale.h"
#include "tests/support/parallel_run.h"

using namespace rw;
using namespace rw::parallel;

namespace {

constexpr int64_t kSteps = 12;
// Ordinary batches of 32 samples overflow from 2^20 on, the planted ones from 2^16 on.
constexpr double kInitial = 0x1p18;
const std::vector<int64_t> kPlanted = {2, 3, 7};
// Before each step, by the rule: halved by an overflow, doubled by three good steps in a row.
const std::vector<double> kScales = {0x1p18, 0x1p18, 0x1p18, 0x1p17, 0x1p16, 0x1p16,
                                     0x1p16, 0x1p17, 0x1p16, 0x1p16, 0x1p16, 0x1p17};

bool planted(int64_t step) { return std::count(kPlanted.begin(), kPlanted.end(), step) > 0; }

// The loss is a mean, so the gradient of a single target takes the whole scale. A planted batch has one, in its last
// sample: one data-parallel rank has it.
ReadSamples one_target(const Case& c, int64_t step) {
  return [=](int64_t first, int64_t n, int32_t* ids, int32_t* targets) {
    const uint64_t digest = reader(c)(first, n, ids, targets);
    const int64_t last = (step + 1) * c.layout.global_batch - 1 - first, seq_len = c.layout.seq_len;
    for (int64_t i = 0; i < n * seq_len; ++i)
      if (i != last * seq_len + seq_len - 1) targets[i] = -1;
    return digest;
  };
}

std::vector<float> state_of(TrainStep& step) {
  std::vector<float> all;
  for (const ShardPiece& p : step.shards().own_pieces()) {
    all.insert(all.end(), step.weights().at(p), step.weights().at(p) + p.n);
    all.insert(all.end(), step.optimizer().m() + p.shard_at, step.optimizer().m() + p.shard_at + p.n);
    all.insert(all.end(), step.optimizer().v() + p.shard_at, step.optimizer().v() + p.shard_at + p.n);
  }
  return all;
}

struct F16Run {
  std::vector<int64_t> skipped;
  std::vector<double> scales, losses;  // losses of the steps that were not planted
  std::vector<float> state;            // of this rank, at the end
};

enum class Batches { with_planted, without };

// Without: the planted steps are left out altogether, the others have the scales they should have.
F16Run run_rank(Comm& world, const Case& c, Batches batches) {
  world.set_timeout(60);
  const auto record = std::make_shared<CommRecord>();
  Mesh mesh = make_mesh(world, mesh_shape_of(c), record);
  Arena arena;
  TrainStep step(settings_of(c), exec_of(c), mesh, record, arena);
  initialise(step, c);
  LossScale scale(kInitial, 3);
  StepClock clock;
  F16Run run;
  for (int64_t i = 0; i < kSteps; ++i) {
    if (planted(i) && batches == Batches::without) continue;
    run.scales.push_back(static_cast<double>(scale.scale()));
    const double used = batches == Batches::without ? kScales[static_cast<size_t>(i)] : run.scales.back();
    const std::vector<float> before = state_of(step);
    const int64_t updates = step.optimizer().steps_taken();
    clock.start();
    const StepResult r = step.run({.first_sample = i * c.layout.global_batch, .lr = c.lr, .loss_scale = used},
                                  planted(i) ? one_target(c, i) : reader(c), clock);
    CHECK(std::isfinite(r.loss));
    CHECK(r.updated == r.finite);
    if (r.finite) {
      CHECK(step.optimizer().steps_taken() == updates + 1);
    } else {
      run.skipped.push_back(i);
      CHECK(step.optimizer().steps_taken() == updates);
      CHECK(state_of(step) == before);
    }
    if (!planted(i)) run.losses.push_back(r.loss);
    scale.observe(!r.finite);
  }
  run.state = state_of(step);
  return run;
}

std::vector<F16Run> run_all(const Case& c, Batches batches) {
  std::vector<F16Run> runs(static_cast<size_t>(c.layout.ranks()));
  std::mutex mutex;
  run_thread_ranks(static_cast<int>(c.layout.ranks()), [&](Comm& world) {
    F16Run mine = run_rank(world, c, batches);
    const std::lock_guard lock(mutex);
    runs[static_cast<size_t>(world.rank())] = std::move(mine);
  });
  return runs;
}

}  // namespace

TEST_CASE("the steps that f16 skips are exactly those whose batch overflows") {
  const auto check = [](auto change) {
    Case c{.model = family_model("llama"), .layout = base_layout(), .t = DType::f16};
    c.layout.global_batch = 32;
    change(c.layout);
    const std::string text = c.layout.text();
    CAPTURE(text);
    const std::vector<F16Run> with = run_all(c, Batches::with_planted), without = run_all(c, Batches::without);
    for (size_t r = 0; r < with.size(); ++r) {
      CAPTURE(r);
      CHECK(with[r].skipped == kPlanted);
      CHECK(with[r].scales == kScales);
      CHECK(without[r].skipped.empty());
      // As if the planted batches had never been.
      CHECK(with[r].losses == without[r].losses);
      CHECK(with[r].state == without[r].state);
    }
    CHECK(with[0].losses.back() < with[0].losses.front());
  };
  SUBCASE("one rank") {
    check([](Layout&) {});
  }
  SUBCASE("data parallelism: one rank sees the overflow") {
    check([](Layout& l) { l.dp = 2; });
  }
  SUBCASE("sharded weights") {
    check([](Layout& l) { l.dp = 4, l.zero = 3; });
  }
  SUBCASE("tensor and sequence parallelism in a pipeline") {
    check([](Layout& l) { l.tp = 2, l.sp = true, l.pp = 2; });
  }
  SUBCASE("all of it") {
    check([](Layout& l) {
      l.tp = 2, l.pp = 2, l.dp = 2, l.zero = 2, l.schedule = ScheduleKind::zb_h1, l.recompute = Recompute::full;
    });
  }
}
