// Ten AdamW steps against transformers, and the laws of data parallelism, accumulation, masks, resuming and skipping.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>

#include "libcore/base/rng.h"
#include "libcore/train/step.h"
#include "libcore/train/train_state.h"
#include "tests/support/golden_model.h"
#include "tests/support/test_rank.h"

using namespace rw;
using golden::GoldenModel;

namespace {

// Compiled once more for the build of the simulator, where the runs (but not their bounds) are a device's.
#if defined(RW_TEST_CUDA)
constexpr const char* kDevice = "cuda";
#else
constexpr const char* kDevice = "cpu";
#endif

struct Setup {
  const GoldenModel& g;
  float eps;
  DType t = DType::f32;
  int64_t micro_batch = 1;
  int64_t global_batch = 0;  // 0: the golden's
  int64_t nudge = 0;         // 0: weights as they are; otherwise each moves by one ulp up or down, by this seed
  const char* device = kDevice;
};

StepSettings settings_of(const Setup& s, int64_t dp) {
  Layout layout;
  layout.dp = dp;
  layout.micro_batch = s.micro_batch;
  layout.global_batch = s.global_batch > 0 ? s.global_batch : s.g.batch;
  layout.seq_len = s.g.seq_len;
  layout.stage_layers = {s.g.spec.layers};
  return {.spec = s.g.spec,
          .layout = layout,
          .adam = {.beta1 = static_cast<float>(s.g.beta1),
                   .beta2 = static_cast<float>(s.g.beta2),
                   .eps = s.eps,
                   .weight_decay = static_cast<float>(s.g.weight_decay)},
          .clip_norm = s.g.clip_norm};
}

// A step over data-parallel ranks, with what it stands on.
struct Trained {
  Trained(const Setup& s, Comm& comm)
      : rank(comm, s.device),
        arena(rank.memory()),
        mesh(make_mesh(rank.world(), mesh_shape(settings_of(s, comm.size()).layout, s.g.spec, comm.size()), record)),
        step(settings_of(s, comm.size()), rank.exec(s.t), mesh, record, arena) {
    load_nudged(s);
  }
  void load_nudged(const Setup& s) {
    load_params(step, *s.g.weights, Load::weights);
    if (s.nudge != 0)
      for (int64_t i = 0; i < step.layout().total(); ++i) {
        float& p = step.weights().masters()[i];
        const bool up = random_bits(rng_key(static_cast<uint64_t>(s.nudge), "ulp"), static_cast<uint64_t>(i)) & 1;
        if (p != 0)
          p = std::nextafter(p, up ? std::numeric_limits<float>::infinity() : -std::numeric_limits<float>::infinity());
      }
    step.weights().loaded();
  }
  StepResult run(int64_t first_sample, const ReadSamples& read, bool stop = false) {
    clock.start();
    return step.run({.first_sample = first_sample, .lr = lr, .stop_asked = stop}, read, clock);
  }
  double lr = 0;
  std::shared_ptr<CommRecord> record = std::make_shared<CommRecord>();
  TestRank rank;
  Arena arena;
  StepClock clock;
  Mesh mesh;
  TrainStep step;
};

// Sample i is row i of the golden batches.
ReadSamples golden_reader(const GoldenModel& g) {
  return [&g](int64_t first, int64_t n, int32_t* ids, int32_t* targets) {
    const auto from = static_cast<size_t>(first * g.seq_len);
    std::copy_n(g.ids.begin() + static_cast<std::ptrdiff_t>(from), n * g.seq_len, ids);
    std::copy_n(g.targets.begin() + static_cast<std::ptrdiff_t>(from), n * g.seq_len, targets);
    return static_cast<uint64_t>(first * 1000 + n);
  };
}

struct Curve {
  std::vector<double> losses, grad_norms;
};

Curve train_golden(const Setup& s, Comm& comm) {
  Trained t(s, comm);
  t.lr = s.g.lr;
  Curve curve;
  for (int64_t i = 0; i < s.g.steps; ++i) {
    const StepResult r = t.run(i * s.g.batch, golden_reader(s.g));
    CHECK(r.updated);
    curve.losses.push_back(r.loss);
    curve.grad_norms.push_back(r.grad_norm);
  }
  return curve;
}

Curve train_alone(const Setup& s) {
  const auto self = make_self_comm();
  return train_golden(s, *self);
}

// 8 times the largest difference so far among five runs whose weights start one ulp apart: what rounding can do.
std::vector<double> rounding_bound(Setup s) {
  std::vector<Curve> runs;
  s.device = "cpu";
  for (int64_t seed = 1; seed <= 5; ++seed) {
    s.nudge = seed;
    runs.push_back(train_alone(s));
  }
  std::vector<double> bound;
  double spread = 0;
  for (size_t i = 0; i < runs[0].losses.size(); ++i) {
    const auto [low, high] = std::minmax_element(
        runs.begin(), runs.end(), [&](const Curve& a, const Curve& b) { return a.losses[i] < b.losses[i]; });
    spread = std::max(spread, high->losses[i] - low->losses[i]);
    bound.push_back(std::max(8 * spread, 4e-7 * runs[0].losses[i]));
  }
  return bound;
}

void check_near(const Curve& a, const std::vector<double>& losses, const std::vector<double>& bound) {
  REQUIRE(a.losses.size() == losses.size());
  for (size_t i = 0; i < losses.size(); ++i) {
    CAPTURE(i);
    CHECK(std::abs(a.losses[i] - losses[i]) <= bound[i]);
  }
  CHECK(std::abs(a.losses[0] - losses[0]) <= 1e-5 * losses[0]);
}

}  // namespace

TEST_CASE("ten AdamW steps follow transformers in f32") {
  for (const std::string& name : golden::golden_names())
    for (const auto& [eps, reference] : golden::load_golden(name).training) {
      CAPTURE(name);
      CAPTURE(eps);
      const GoldenModel g = golden::load_golden(name);
      const Setup setup{.g = g, .eps = std::stof(eps)};
      const Curve ours = train_alone(setup);
      REQUIRE(std::abs(ours.losses.back() - ours.losses.front()) > 0.05);  // it does learn
      check_near(ours, reference.losses_f64, rounding_bound(setup));
      CHECK(std::abs(ours.grad_norms[0] - reference.grad_norms_f64[0]) <= 1e-5 * reference.grad_norms_f64[0]);
    }
}

TEST_CASE("ten AdamW steps in bf16 stay within 4 times the reference's own distance from f64") {
  for (const std::string& name : golden::golden_names()) {
    CAPTURE(name);
    const GoldenModel g = golden::load_golden(name);
    const auto& f64 = g.training.at("0.0001").losses_f64;
    double reference = 0, ours_worst = 0;
    for (size_t i = 0; i < f64.size(); ++i) reference = std::max(reference, std::abs(g.bf16_losses[i] - f64[i]));
    const Curve ours = train_alone({.g = g, .eps = 1e-4f, .t = DType::bf16});
    for (size_t i = 0; i < f64.size(); ++i) ours_worst = std::max(ours_worst, std::abs(ours.losses[i] - f64[i]));
    CHECK(ours_worst <= 4 * reference);
  }
}

TEST_CASE("1 and 2 data-parallel ranks and gradient accumulation give the same losses, with ragged masks") {
  const GoldenModel g = golden::load_golden("llama");
  const Setup setup{.g = g, .eps = 1e-4f, .micro_batch = 2};
  const Curve whole_batch = train_alone(setup);
  const std::vector<double> bound = rounding_bound(setup);
  check_near(train_alone({.g = g, .eps = 1e-4f, .micro_batch = 1}), whole_batch.losses, bound);
  std::mutex mutex;
  std::vector<Curve> ranks;
  run_thread_ranks(2, [&](Comm& comm) {
    const Curve curve = train_golden({.g = g, .eps = 1e-4f, .micro_batch = 1}, comm);
    const std::lock_guard lock(mutex);
    ranks.push_back(curve);
  });
  check_near(ranks[0], whole_batch.losses, bound);
  CHECK(ranks[0].losses == ranks[1].losses);
  CHECK(ranks[0].grad_norms == ranks[1].grad_norms);
}

TEST_CASE("4 data-parallel ranks give the losses of one, in f32") {
  const GoldenModel g = golden::load_golden("qwen2");
  constexpr int64_t kSteps = 5, kBatch = 4;
  const auto run_on = [&](Comm& comm, int64_t micro_batch, int64_t nudge) {
    Trained t({.g = g, .eps = 1e-4f, .micro_batch = micro_batch, .global_batch = kBatch, .nudge = nudge}, comm);
    t.lr = g.lr;
    std::vector<double> losses;
    for (int64_t i = 0; i < kSteps; ++i) losses.push_back(t.run(i * kBatch, golden_reader(g)).loss);
    return losses;
  };
  const auto self = make_self_comm();
  const std::vector<double> one = run_on(*self, 2, 0);
  std::vector<double> spread(kSteps, 0);
  for (int64_t seed = 1; seed <= 5; ++seed) {
    const std::vector<double> nudged = run_on(*self, 2, seed);
    for (size_t i = 0; i < spread.size(); ++i)
      spread[i] = std::max({spread[i], i > 0 ? spread[i - 1] : 0.0, std::abs(nudged[i] - one[i])});
  }
  run_thread_ranks(4, [&](Comm& comm) {
    const std::vector<double> four = run_on(comm, 1, 0);
    for (size_t i = 0; i < four.size(); ++i)
      CHECK(std::abs(four[i] - one[i]) <= std::max(8 * spread[i], 4e-7 * one[i]));
  });
}

TEST_CASE("k steps, a save, a load and the rest are bit-equal to an unbroken run") {
  const GoldenModel g = golden::load_golden("gpt2");
  for (const DType t : {DType::f32, DType::bf16}) {
    const Setup setup{.g = g, .eps = 1e-8f, .t = t};
    const auto self = make_self_comm();
    const Curve unbroken = train_alone(setup);
    Trained first(setup, *self), second(setup, *self);
    first.lr = second.lr = g.lr;
    for (int64_t i = 0; i < 4; ++i)
      CHECK(first.run(i * g.batch, golden_reader(g)).loss == unbroken.losses[static_cast<size_t>(i)]);
    std::memcpy(second.step.weights().masters(), first.step.weights().masters(),
                static_cast<size_t>(first.step.layout().total()) * sizeof(float));
    const size_t bytes = static_cast<size_t>(first.step.shards().shard_total()) * sizeof(float);
    std::memcpy(second.step.optimizer().m(), first.step.optimizer().m(), bytes);
    std::memcpy(second.step.optimizer().v(), first.step.optimizer().v(), bytes);
    second.step.optimizer().set_steps_taken(first.step.optimizer().steps_taken());
    second.step.weights().loaded();
    for (int64_t i = 4; i < g.steps; ++i)
      CHECK(second.run(i * g.batch, golden_reader(g)).loss == unbroken.losses[static_cast<size_t>(i)]);
  }
}

TEST_CASE("a non-finite step is skipped on all ranks alike and changes nothing") {
  const GoldenModel g = golden::load_golden("llama");
  run_thread_ranks(2, [&](Comm& comm) {
    Trained t({.g = g, .eps = 1e-4f}, comm);
    t.lr = g.lr;
    float* masters = t.step.weights().masters();
    // Only rank 1 sees the broken weight; all ranks must skip.
    float* norm = t.step.layout().find(masters, ParamRole::final_norm_w, g.spec.layers);
    const float kept = norm[3];
    if (comm.rank() == 1) norm[3] = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> before(masters, masters + t.step.layout().total());
    const StepResult broken = t.run(0, golden_reader(g));
    CHECK_FALSE(broken.updated);
    CHECK_FALSE(broken.finite);
    CHECK(t.step.optimizer().steps_taken() == 0);
    CHECK(std::memcmp(before.data(), masters, before.size() * sizeof(float)) == 0);
    norm[3] = kept;
    const StepResult whole = t.run(0, golden_reader(g), comm.rank() == 1);
    CHECK(whole.updated);
    CHECK(whole.stop);  // one rank's wish to stop is everybody's
    CHECK(whole.loss == doctest::Approx(g.loss_f64).epsilon(1e-5));
  });
}

TEST_CASE("a batch without a valid target has loss 0 and a token id beyond the vocabulary is refused") {
  const GoldenModel g = golden::load_golden("qwen2");
  const auto self = make_self_comm();
  Trained t({.g = g, .eps = 1e-4f}, *self);
  const StepResult masked = t.run(0, [&](int64_t, int64_t n, int32_t* ids, int32_t* targets) {
    std::fill_n(ids, n * g.seq_len, 1);
    std::fill_n(targets, n * g.seq_len, -1);
    return uint64_t{0};
  });
  CHECK(masked.loss == 0);
  CHECK(masked.grad_norm == 0);
  CHECK(masked.valid_tokens == 0);
  const auto bad = [&](int64_t, int64_t n, int32_t* ids, int32_t* targets) {
    std::fill_n(ids, n * g.seq_len, static_cast<int32_t>(g.spec.vocab_size));
    std::fill_n(targets, n * g.seq_len, 1);
    return uint64_t{0};
  };
  CHECK_THROWS_WITH(t.run(0, bad),
                    "the data holds token id 131; expected ids in [0, 131), the model's vocabulary; prepare it with "
                    "this model's tokenizer");
}

TEST_CASE("initial weights do not depend on the number of ranks and follow the table") {
  const GoldenModel g = golden::load_golden("gpt2");
  const ParamLayout layout(g.spec);
  std::vector<float> a(static_cast<size_t>(layout.total())), b(a.size());
  init_params(layout, a.data(), 5);
  run_thread_ranks(3, [&](Comm&) {
    std::vector<float> mine(a.size());
    init_params(layout, mine.data(), 5);
    CHECK(mine == a);
  });
  init_params(layout, b.data(), 6);
  CHECK(a != b);
  for (size_t i = 0; i < layout.params().size(); ++i) {
    const Param& p = layout.params()[i];
    const Range s = layout.slice(i);
    const float first = a[static_cast<size_t>(s.offset)];
    if (p.init == Init::ones) CHECK(first == 1.0f);
    if (p.init == Init::zeros) CHECK(first == 0.0f);
    if (p.init == Init::normal) CHECK(first != a[static_cast<size_t>(s.offset + 1)]);
  }
}
