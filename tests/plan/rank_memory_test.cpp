// The closed form of a rank's memory against the dry run of the whole step, over layouts and models at random; its
// parts against the tables of the papers; what schedules hold against their actions.
#include "libcore/plan/memory/rank_memory.h"

#include <doctest/doctest.h>

#include <cmath>
#include <random>

#include "kernels/plain_sizes.h"
#include "libcore/model/exec.h"
#include "libcore/plan/memory/held_slots.h"
#include "libcore/spec/tensor_parallel.h"
#include "libcore/train/dry_run.h"

using namespace rw;

namespace {

using Random = std::mt19937_64;

template <typename T>
T pick(Random& random, std::initializer_list<T> choices) {
  return choices.begin()[random() % choices.size()];
}

// Llama 3.1 405B and 8B, GPT-2 1.5B, Qwen 2.5 0.5B by their published sizes with fewer layers; and sizes of no model,
// all odd where they may be.
ModelSpec some_model(Random& random) {
  ModelSpec s;
  s.family = pick(random, {Family::llama, Family::gpt2, Family::qwen2});
  s.layers = pick<int64_t>(random, {3, 5, 8, 13});
  struct Size {
    int64_t width, heads, kv_heads, head_dim, ffn, vocab;
  };
  const Size size = pick<Size>(random, {{16384, 128, 8, 128, 53248, 128256},
                                        {4096, 32, 8, 128, 14336, 128256},
                                        {1600, 25, 25, 64, 6400, 50257},
                                        {896, 14, 2, 64, 4864, 151936},
                                        {36, 4, 2, 9, 68, 131},
                                        {84, 12, 4, 7, 132, 257},
                                        {24, 4, 1, 6, 44, 61}});
  s.width = size.width;
  s.heads = size.heads;
  s.kv_heads = s.family == Family::gpt2 ? size.heads : size.kv_heads;
  s.head_dim = size.head_dim;
  s.ffn = size.ffn;
  s.vocab_size = size.vocab;
  s.max_position = 4096;
  s.tied_head = random() % 2 == 0;
  s.qkv_bias = s.family != Family::llama;
  s.out_bias = s.mlp_bias = s.family == Family::gpt2;
  return s;
}

struct Case {
  ModelSpec model;
  Layout layout;
  int64_t ranks_per_node = 1;
  DType t = DType::bf16;
  const Ops* backend = nullptr;
  int threads = 1;
};

bool fits(const Layout& l, const ModelSpec& model) {
  if (!tp_fault(model, l.tp).empty() || (l.sp && l.tp == 1) || model.layers < l.pp * l.vpp) return false;
  if (l.schedule == ScheduleKind::interleaved && (l.vpp == 1 || l.micro_batches() % l.pp != 0)) return false;
  return l.zero > 0 || l.zero_group == ZeroGroup::all;
}

// The model's layers dealt at random, at least one to each.
std::vector<int64_t> some_dealing(Random& random, int64_t layers, int64_t stages) {
  std::vector<int64_t> dealt(static_cast<size_t>(stages), 1);
  for (int64_t i = stages; i < layers; ++i) ++dealt[random() % dealt.size()];
  return dealt;
}

Case some_case(Random& random) {
  for (;;) {
    Case c{.model = some_model(random), .layout = {}};
    Layout& l = c.layout;
    l.tp = pick<int64_t>(random, {1, 2, 4, 8});
    l.pp = pick<int64_t>(random, {1, 2, 3, 4});
    l.vpp = pick<int64_t>(random, {1, 1, 2, 3});
    l.dp = pick<int64_t>(random, {1, 2, 3, 8, 30});
    l.sp = random() % 2 == 0;
    l.zero = pick<int64_t>(random, {0, 1, 2, 3});
    l.zero_group = pick(random, {ZeroGroup::all, ZeroGroup::node});
    l.schedule =
        pick(random, {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::interleaved, ScheduleKind::zb_h1});
    l.micro_batch = pick<int64_t>(random, {1, 2, 3});
    l.global_batch = l.micro_batch * l.dp * pick<int64_t>(random, {1, 3, 4, 8, 12});
    l.seq_len = pick<int64_t>(random, {13, 127, 1025, 2048});
    l.recompute = pick(random, {Recompute::none, Recompute::selective, Recompute::full});
    if (l.recompute != Recompute::none) l.recompute_layers = pick<int64_t>(random, {0, 1, 2, c.model.layers});
    if (!fits(l, c.model)) continue;
    l.stage_layers = some_dealing(random, c.model.layers, l.pp * l.vpp);
    c.ranks_per_node = l.tp * (l.dp % 2 == 0 ? 2 : l.dp % 3 == 0 ? 3 : 1);
    c.t = pick(random, {DType::bf16, DType::f32});
    c.backend = random() % 3 == 0 ? &this_cpu_ops() : &plain_sizes();
    c.threads = pick(random, {1, 3});
    return c;
  }
}

MemoryQuery query_of(const Case& c) {
  return {.model = c.model,
          .layout = c.layout,
          .ranks_per_node = c.ranks_per_node,
          .t = c.t,
          .backend = *c.backend,
          .threads = c.threads};
}

DryRun dry(const Case& c, int64_t stage) {
  return dry_run({.step = {.spec = c.model,
                           .layout = c.layout,
                           .adam = {.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f},
                           .clip_norm = 1},
                  .backend = {.ops = *c.backend, .stream = {.threads = c.threads}, .t = c.t},
                  .ranks_per_node = c.ranks_per_node},
                 stage * c.layout.tp * c.layout.dp);
}

void check_memory(const Case& c, int64_t stage) {
  const std::string text = c.layout.text();
  const std::string model = std::string(family_name(c.model.family)) + " of width " + std::to_string(c.model.width);
  CAPTURE(text);
  CAPTURE(model);
  CAPTURE(stage);
  CAPTURE(c.layout.micro_batch);
  CAPTURE(c.layout.seq_len);
  const RankMemory got = rank_memory(query_of(c), stage);
  const DryRun expected = dry(c, stage);
  for (size_t o = 0; o < got.bytes.size(); ++o) {
    const auto bytes = static_cast<double>(expected.bytes[o]);
    const std::string owner = memory_owner_name(static_cast<MemoryOwner>(o));
    CAPTURE(owner);
    CAPTURE(bytes);
    CAPTURE(got.bytes[o]);
    CHECK(std::abs(got.bytes[o] - bytes) <= std::max(0.01 * bytes, 1048576.0));
  }
  CHECK(got.total() == doctest::Approx(static_cast<double>(expected.total_bytes)).epsilon(0.01));
}

Case plain(const ModelSpec& model, const Layout& layout) {
  Case c{.model = model, .layout = layout, .ranks_per_node = layout.ranks(), .backend = &plain_sizes()};
  c.layout.stage_layers = deal_layers(model, layout.pp * layout.vpp, layout.seq_len);
  return c;
}

ModelSpec llama3_8b() {
  ModelSpec s;
  s.family = Family::llama;
  s.layers = 32;
  s.width = 4096;
  s.heads = 32;
  s.kv_heads = 8;
  s.head_dim = 128;
  s.ffn = 14336;
  s.vocab_size = 128256;
  s.max_position = 8192;
  return s;
}

}  // namespace

TEST_CASE("rank_memory: within 1 % of the dry run, over models, layouts and backends at random") {
  Random random(20231130);
  for (int i = 0; i < 400; ++i) {
    const Case c = some_case(random);
    CAPTURE(i);
    check_memory(c, static_cast<int64_t>(random()) & (c.layout.pp - 1));
    check_memory(c, c.layout.pp - 1);
  }
}

TEST_CASE("rank_memory: many ranks") {
  Layout l;
  l.tp = 8;
  l.pp = 4;
  l.sp = true;
  l.micro_batch = 1;
  l.seq_len = 2048;
  for (const int64_t dp : {128, 510})
    for (const int64_t zero : {0, 1, 2, 3}) {
      l.dp = dp;
      l.zero = zero;
      l.global_batch = dp * 4;
      const Case c = plain(llama3_8b(), l);
      check_memory(c, 0);
      check_memory(c, 3);
    }
}

// Rajbhandari et al. 2020, figure 1, with the masters of mixed precision: 18 bytes a parameter (2 for the copy in 16
// bits, 4 each for gradient, master and both moments), of which stage 1 divides the moments, stage 2 the gradients too.
TEST_CASE("rank_memory: bytes a parameter by ZeRO stage") {
  const auto n = 8.03e9;
  const int64_t dp = 64;
  const auto states = [&](int64_t zero) {
    Layout l;
    l.dp = dp;
    l.zero = zero;
    l.global_batch = dp;
    l.seq_len = 128;
    const RankMemory m = rank_memory(query_of(plain(llama3_8b(), l)), 0);
    return (m[MemoryOwner::weights] + m[MemoryOwner::packed_weights] + m[MemoryOwner::gradients] +
            m[MemoryOwner::optimizer]) /
           n;
  };
  // The input embedding (6.5 % of the parameters) is read from its master: it has no copy in 16 bits.
  CHECK(states(0) == doctest::Approx(18 - 2 * 0.065).epsilon(0.01));
  CHECK(states(1) == doctest::Approx(10 - 2 * 0.065 + 8.0 / 64).epsilon(0.01));
  // Lent buffers: two blocks and both ends (1.05e9 + 2 * 218e6), of gradients; in stage 3 of weights too.
  const double lent = (1.0507e9 + 2 * 218.1e6) / n;
  CHECK(states(2) == doctest::Approx(6 - 2 * 0.065 + 12.0 / 64 + 4 * lent).epsilon(0.01));
  const double copies = (0.5254e9 + 2 * 218.1e6) / n;
  CHECK(states(3) == doctest::Approx(16.0 / 64 + 8 * lent + 2 * copies).epsilon(0.01));
}

// A llama block keeps, of each token in 16 bits: its input, both norms' outputs and the stream between, qkv,
// attention's output, up and gate, their product; beside them f32 log-sum-exp and two rstd. Fully recomputed: the input
// alone.
TEST_CASE("rank_memory: activations of a layer") {
  const ModelSpec model = llama3_8b();
  Layout l;
  l.global_batch = l.micro_batch = 2;
  l.seq_len = 4096;
  const auto activations = [&](int64_t layers, Recompute recompute) {
    ModelSpec cut = model;
    cut.layers = layers;
    l.recompute = recompute;
    l.recompute_layers = 0;
    return rank_memory(query_of(plain(cut, l)), 0)[MemoryOwner::activations];
  };
  const auto layer = [&](Recompute r) { return activations(8, r) - activations(7, r); };
  const double tokens = 2 * 4096;
  const double kept = 2 * (4 * 4096 + 6144 + 4096 + 3 * 14336) + 4 * (32 + 2);
  CHECK(layer(Recompute::none) == doctest::Approx(tokens * kept).epsilon(1e-3));
  CHECK(layer(Recompute::selective) == doctest::Approx(tokens * (kept - 2 * 4096 - 4 * 32)).epsilon(1e-3));
  CHECK(layer(Recompute::full) == doctest::Approx(tokens * 2 * 4096).epsilon(1e-3));
}

TEST_CASE("rank_memory: the worst stage is the worst of all") {
  Random random(7);
  for (int i = 0; i < 30; ++i) {
    const Case c = some_case(random);
    const WorstStage worst = worst_stage(query_of(c));
    MemoryModel model(
        {.model = c.model, .ranks_per_node = c.ranks_per_node, .t = c.t, .backend = *c.backend, .threads = c.threads});
    double most = 0;
    for (int64_t stage = 0; stage < c.layout.pp; ++stage) most = std::max(most, model.of(c.layout, stage).total());
    CHECK(worst.memory.total() == most);
    CHECK(model.of(c.layout, worst.stage).total() == most);
  }
}

TEST_CASE("held_slots: as many as the actions hold") {
  for (const ScheduleKind kind :
       {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::interleaved, ScheduleKind::zb_h1})
    for (int stages = 1; stages <= 7; ++stages)
      for (int chunks = 1; chunks <= 4; ++chunks)
        for (const int micro_batches : {1, 2, 3, 5, 6, 7, 8, 12, 15, 21, 24, 28, 35, 60}) {
          if (kind == ScheduleKind::interleaved && micro_batches % stages != 0) continue;
          const PipelineShape shape{.kind = kind, .stages = stages, .chunks = chunks, .micro_batches = micro_batches};
          for (int stage = 0; stage < stages; ++stage) {
            const std::vector<Live> expected = live_of(pipeline_actions(shape, stage), chunks);
            const std::vector<Live> got = held_slots(shape, stage);
            CAPTURE(schedule_name(kind));
            CAPTURE(stages);
            CAPTURE(chunks);
            CAPTURE(micro_batches);
            CAPTURE(stage);
            REQUIRE(got.size() == expected.size());
            for (size_t c = 0; c < got.size(); ++c) {
              CHECK(got[c].activations == expected[c].activations);
              CHECK(got[c].weight_gradients == expected[c].weight_gradients);
            }
          }
        }
}
