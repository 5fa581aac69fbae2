#include "libcore/plan/price/trainer_traits.h"

#include <doctest/doctest.h>

#include "libcore/base/error.h"
#include "libcore/plan/price/predict.h"

using namespace rw;

namespace {

ModelSpec odd_model() {
  ModelSpec m;
  m.family = Family::gpt2;
  m.vocab_size = 1280;
  m.width = 384, m.layers = 6, m.heads = m.kv_heads = 6, m.head_dim = 64, m.ffn = 1536, m.max_position = 128;
  m.qkv_bias = m.out_bias = m.mlp_bias = m.tied_head = true;
  return m;
}

// Two nodes of 4 devices.
ClusterSpec two_nodes() {
  ClusterSpec c;
  DeviceType d;
  d.name = "unit";
  d.memory = int64_t{1} << 36;
  d.peak_bf16 = 1e13, d.memory_bandwidth = 1e11, d.compute_units = 13, d.overlap = 0.5;
  NodeType n;
  n.device = "unit", n.count = 2, n.devices = 4, n.link_bandwidth = 1e11, n.nics = 4, n.nic_bandwidth = 1e10;
  c.devices = {d};
  c.nodes = {n};
  return c;
}

TrainerTraits other() {
  TrainerTraits t;
  t.name = "other";
  t.gradient_bytes = t.parameter_bytes = 2;
  return t;
}

Layout layout(int64_t tp, int64_t pp, int64_t dp) {
  Layout l{.tp = tp, .pp = pp, .dp = dp, .micro_batch = 1, .global_batch = 6 * dp, .seq_len = 128};
  l.stage_layers = std::vector<int64_t>(static_cast<size_t>(pp), 6 / pp);
  return l;
}

StepSeconds step(const Layout& l, const TrainerTraits& t) {
  static const ModelSpec model = odd_model();
  static const ClusterSpec cluster = two_nodes();
  PredictQuery query{.model = model, .cluster = cluster};
  query.trainer = t;
  return Predictor(query).step_seconds(l, Effort::closed_form);
}

}  // namespace

TEST_CASE("trainer_traits: compute") {
  Layout l = layout(1, 1, 1);
  const StepSeconds plain = step(l, other());
  TrainerTraits t = other();
  t.attention = "unfused";
  CHECK(step(l, t).compute > plain.compute);
  t = other();
  t.attention_rate = 0.5;
  CHECK(step(l, t).compute > plain.compute);
  t = other();
  t.compute_factor = 1.5;
  CHECK(step(l, t).compute == doctest::Approx(1.5 * plain.compute));
  // 6 layers of 12 h^2 + 13 h parameters, six micro-batches, at 0.8 of 1e11 bytes/s.
  t = other();
  t.accumulation_bytes = 10;
  const double params = 6 * (12.0 * 384 * 384 + 13 * 384);
  CHECK(step(l, t).compute - plain.compute == doctest::Approx(6 * 10 * params / 8e10));

  l.recompute = Recompute::full;
  l.recompute_layers = 6;
  t = other();
  t.whole_layers = true;
  const double part = step(l, other()).compute, whole = step(l, t).compute;
  CHECK(part > plain.compute);
  CHECK(whole > part);
  l.recompute = Recompute::selective;
  const double attention = step(l, other()).compute;
  t.selective = "half";
  const double half = step(l, t).compute;
  CHECK(attention > plain.compute);
  CHECK(half > attention);
  CHECK(half < whole);
}

TEST_CASE("trainer_traits: tensor-parallel and pipeline communication") {
  const Layout split = layout(2, 1, 1), pipeline = layout(1, 2, 1);
  TrainerTraits t = other();
  t.tp_hidden = 0.25;
  CHECK(step(split, t).exposed_tp == doctest::Approx(0.75 * step(split, other()).exposed_tp));
  t = other();
  t.communication_factor = 3;
  CHECK(step(split, t).exposed_tp == doctest::Approx(3 * step(split, other()).exposed_tp));
  // Six micro-batches and a step of bubble wait for a message either way, instead of the first and the last.
  t = other();
  t.blocking_messages = true;
  CHECK(step(pipeline, t).exposed_pp == doctest::Approx(7 * step(pipeline, other()).exposed_pp));
  Layout again = split;
  again.recompute = Recompute::full, again.recompute_layers = 6;
  t = other();
  t.whole_layers = true;
  CHECK(step(again, t).exposed_tp > step(again, other()).exposed_tp);
}

TEST_CASE("trainer_traits: data-parallel communication") {
  Layout l = layout(1, 1, 8);
  TrainerTraits apart = other();
  apart.overlaps_gradients = false;
  for (const int64_t zero : {0, 1}) {
    CAPTURE(zero);
    l.zero = zero;
    const double alone = step(l, apart).exposed_dp;
    CHECK(step(l, other()).exposed_dp < alone);
    TrainerTraits t = apart;
    t.gradient_bytes = 4;
    CHECK(step(l, t).exposed_dp > 1.2 * alone);
    t = apart;
    t.messages = "tensors";  // 72 collectives for one
    CHECK(step(l, t).exposed_dp > alone);
    t = apart;
    t.bucket_bytes = 1e5;
    CHECK(step(l, t).exposed_dp > alone);
    t = apart;
    t.parameter_bytes = 4;
    if (zero == 0) CHECK(step(l, t).exposed_dp == alone);
    else CHECK(step(l, t).exposed_dp > 1.2 * alone);
    t = apart;
    t.reduces_all = true;
    if (zero == 0) CHECK(step(l, t).exposed_dp == alone);
    else CHECK(step(l, t).exposed_dp > 1.2 * alone);
  }
  // Broadcasts come after the update: nothing hides them.
  l.zero = 1;
  TrainerTraits t = other();
  t.broadcasts = true;
  CHECK(step(l, t).exposed_dp > step(l, other()).exposed_dp);
  for (const int64_t zero : {2, 3}) {
    CAPTURE(zero);
    l.zero = zero;
    t = other();
    t.messages = "tensors";
    CHECK(step(l, t).exposed_dp > step(l, other()).exposed_dp);
    t = other();
    t.gradient_bytes = 4;
    CHECK(step(l, t).exposed_dp > step(l, other()).exposed_dp);
  }
  CHECK(step(layout(2, 2, 1), other()).exposed_dp == 0);
}

TEST_CASE("trainer_traits: the shipped file, and what is refused") {
  const std::vector<TrainerTraits> all = published_trainers();
  CHECK(all.size() > 10);
  CHECK(trainer_named(all, "bloom").attention == "unfused");
  const std::vector<TrainerTraits> one =
      parse_trainers("[trainer.x]\nattention = \"unfused\"\ncompute-factor = 0.5\n", "t");
  REQUIRE(one.size() == 1);
  CHECK(one[0].name == "x");
  CHECK(!one[0].kernel().fused);
  CHECK(one[0].compute_factor == 0.5);
  CHECK_THROWS_WITH_AS(parse_trainers("[trainer.x]\nattentoin = \"fused\"\n", "t"), doctest::Contains("attention"),
                       Error);
  CHECK_THROWS_AS(parse_trainers("[trainer.x]\nattention = \"slow\"\n", "t"), Error);
  CHECK_THROWS_WITH_AS(trainer_named(one, "y"), doctest::Contains("y"), Error);
}
