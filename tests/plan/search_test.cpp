#include "libcore/plan/search/search.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "kernels/plain_sizes.h"
#include "libcore/base/error.h"
#include "libcore/plan/search/exact.h"
#include "libcore/plan/search/plan_spec.h"
#include "libcore/spec/train_spec.h"

using namespace rw;

namespace {

ClusterSpec cluster_of(const char* name, int64_t nodes) {
  ClusterSpec c = load_cluster_spec(name);
  set_node_count(c, nodes);
  return c;
}

PlanWishes wishes(int64_t global_batch, int64_t seq_len) {
  PlanWishes w;
  w.global_batch = global_batch;
  w.seq_len = seq_len;
  w.backend = &plain_sizes();
  return w;
}

Prediction best_of(const PlanWishes& w, const ModelSpec& model, const ClusterSpec& cluster) {
  const PlanAnswer answer = search_plans({w, model, cluster}, 1);
  REQUIRE(answer.plans.size() == 1);
  return answer.plans.front();
}

}  // namespace

TEST_CASE("search: every plan is a layout that the trainer takes, within the device's memory, best first") {
  const ModelSpec model = load_model_spec("llama-2-13b");
  for (const int64_t nodes : {1, 3, 4}) {
    const ClusterSpec cluster = cluster_of("a100-80", nodes);
    const PlanAnswer answer = search_plans({wishes(96, 2048), model, cluster}, 40);
    REQUIRE(answer.plans.size() >= 10);
    double before = 0;
    for (const Prediction& p : answer.plans) {
      CAPTURE(p.layout.text());
      CHECK(p.step_s >= before);
      before = p.step_s;
      CHECK(p.memory.total() <= p.device_bytes);
      CHECK(p.time.total() == doctest::Approx(p.step_s));
      CHECK(p.layout.ranks() == cluster.device_count());
      CHECK(p.mfu.causal > 0);
      CHECK(p.mfu.causal < p.mfu.full);
      CHECK(p.mfu.hardware < 1);
      PlanSpec spec;
      spec.model = "llama-2-13b";
      spec.cluster = "a100-80";
      spec.nodes = nodes;
      spec.global_batch = 96;
      spec.seq_len = 2048;
      TrainSpec train;
      Json tables = Json::object();
      read_toml(fields(train), plan_toml(PlanInputs(spec), p), "the plan", {"plan", "predicted"}, &tables);
      const Layout settled = settle_layout(train, model, cluster.device_count());
      CHECK(train.device == "cuda");
      CHECK(settled.text() == p.layout.text());
      CHECK(settled.stage_layers == p.layout.stage_layers);
      CHECK(settled.micro_batches() == p.layout.micro_batches());
      CHECK(settled.recompute_layers == p.layout.recompute_layers);
      CHECK(tables["predicted"]["step-time-s"].get<double>() == doctest::Approx(p.step_s));
      CHECK(tables["plan"]["ranks"].get<int64_t>() == cluster.device_count());
    }
  }
}

TEST_CASE("search: more memory and more bandwidth never make the best plan slower") {
  const ModelSpec model = load_model_spec("llama-2-13b");
  const PlanWishes w = wishes(128, 4096);
  double before = 0;
  for (const int64_t gib : {24, 40, 64, 80, 200}) {
    ClusterSpec c = cluster_of("a100-80", 2);
    c.devices[0].memory = gib << 30;
    const double s = best_of(w, model, c).step_s;
    if (before > 0) CHECK(s <= before * (1 + 1e-9));
    before = s;
  }
  for (const bool nic : {true, false}) {
    before = 0;
    for (const double factor : {0.1, 0.5, 1.0, 3.0, 10.0}) {
      ClusterSpec c = cluster_of("a100-80", 2);
      (nic ? c.nodes[0].nic_bandwidth : c.nodes[0].link_bandwidth) *= factor;
      c.nodes[0].collectives.clear();
      const double s = best_of(w, model, c).step_s;
      if (before > 0) CHECK(s <= before * (1 + 1e-9));
      before = s;
    }
  }
}

TEST_CASE("search: doubling dp at a fixed global batch never takes more activation memory of a rank") {
  const ModelSpec model = load_model_spec("llama-2-7b");
  for (const int64_t tp : {1, 2, 4})
    for (const int64_t micro_batch : {1, 2}) {
      double before = 0;
      for (const int64_t nodes : {1, 2, 4, 8}) {
        PlanWishes w = wishes(128, 2048);
        w.tp = tp;
        w.pp = 1;
        w.micro_batch = micro_batch;
        w.zero = 1;
        w.recompute = Recompute::none;
        const ClusterSpec c = cluster_of("a100-80", nodes);
        const PlanAnswer answer = search_plans({w, model, c}, 1);
        if (answer.plans.empty()) continue;
        const double now = answer.plans[0].memory.bytes[static_cast<size_t>(MemoryOwner::activations)];
        if (before > 0) CHECK(now <= before);
        before = now;
      }
    }
}

TEST_CASE("search: pins are kept, and pins that contradict each other are named") {
  const ModelSpec model = load_model_spec("llama-2-13b");
  const ClusterSpec c = cluster_of("h100-sxm", 2);
  PlanWishes w = wishes(64, 2048);
  w.tp = 4;
  w.zero = 2;
  w.micro_batch = 2;
  w.recompute = Recompute::full;
  w.sp = false;
  const Prediction p = best_of(w, model, c);
  CHECK(p.layout.tp == 4);
  CHECK(p.layout.zero == 2);
  CHECK(p.layout.micro_batch == 2);
  CHECK(p.layout.recompute == Recompute::full);
  CHECK_FALSE(p.layout.sp);

  const auto refused = [&](const PlanWishes& wish, const char* text) {
    CHECK_THROWS_WITH_AS(search_plans({wish, model, c}, 1), doctest::Contains(text), Error);
  };
  PlanWishes bad = wishes(64, 2048);
  bad.tp = 8;
  bad.pp = 4;
  refused(bad, "--tp 8 x --pp 4 = 32 does not divide 16 ranks");
  bad = wishes(64, 2048);
  bad.tp = 3;
  refused(bad, "3");
  bad = wishes(64, 2048);
  bad.dp = 16;
  bad.micro_batch = 8;
  refused(bad, "--dp 16 x --micro-batch 8 = 128 does not divide --global-batch 64");
  bad = wishes(64, 2048);
  bad.pp = 16;
  bad.vpp = 8;
  refused(bad, "more than the model's 40 layers");
  bad = wishes(64, 2048);
  bad.vpp = 2;
  bad.schedule = ScheduleKind::one_f_one_b;
  refused(bad, "--vpp 2 needs --schedule interleaved");
}

TEST_CASE("search: when nothing fits it says by how much, and what would fit does") {
  const ModelSpec model = load_model_spec("llama-2-70b");
  ClusterSpec c = cluster_of("a100-80", 1);
  const PlanAnswer answer = search_plans({wishes(64, 4096), model, c}, 3);
  CHECK(answer.plans.empty());
  CHECK(answer.nothing_fits.find("does not fit by") != std::string::npos);
  REQUIRE(answer.remedy.find("more nodes: with ") == 0);
  CHECK(answer.remedy.find("micro-batch") != std::string::npos);
  set_node_count(c, std::stoll(answer.remedy.substr(17)));
  CHECK_FALSE(search_plans({wishes(64, 4096), model, c}, 1).plans.empty());

  PlanWishes w = wishes(64, 4096);
  w.micro_batch = 32;
  w.recompute = Recompute::none;
  const ModelSpec small = load_model_spec("llama-2-7b");
  const PlanAnswer pinned = search_plans({w, small, cluster_of("a100-80", 1)}, 1);
  CHECK(pinned.plans.empty());
  CHECK((pinned.remedy.find("computed again") != std::string::npos ||
         pinned.remedy.find("fewer tokens per micro-batch") != std::string::npos));
}

TEST_CASE("search: the memory of the plan that is handed out is the dry run's, near the formula's") {
  const ModelSpec model = load_model_spec("llama-2-13b");
  const ClusterSpec c = cluster_of("a100-80", 4);
  const PlanWishes w = wishes(256, 4096);
  Prediction p = best_of(w, model, c);
  const double formula = p.memory.total();
  take_exact_memory({w, model, c}, p);
  CHECK(p.memory.total() == doctest::Approx(formula).epsilon(0.01));
  CHECK(p.memory.total() <= p.device_bytes);
}

TEST_CASE("search: rejected neighbours say why") {
  const ModelSpec model = load_model_spec("llama-3-70b");
  const ClusterSpec c = cluster_of("h100-sxm", 8);
  const PlanQuestion q{wishes(512, 4096), model, c};
  const PlanAnswer answer = search_plans(q, 1);
  REQUIRE_FALSE(answer.plans.empty());
  CHECK(answer.rejected.size() >= 3);
  for (const Rejected& r : answer.rejected) {
    CAPTURE(r.change);
    CHECK((r.reason.find("% step: ") != std::string::npos || r.reason.find("does not fit by ") == 0));
  }
}

TEST_CASE("search: a remedy keeps the pins that it does not name, and says when more nodes cannot be tried") {
  const ModelSpec model = load_model_spec("llama-2-13b");
  PlanWishes w = wishes(64, 4096);
  w.zero = 0;
  w.tp = 2;
  w.pp = 1;
  ClusterSpec c = cluster_of("a100-40", 1);
  const PlanAnswer answer = search_plans({w, model, c}, 1);
  REQUIRE(answer.plans.empty());
  REQUIRE(answer.remedy.find("let more states be sharded") == 0);
  w.zero.reset();
  CHECK(search_plans({w, model, c}, 1).plans.front().layout.tp == 2);

  ClusterSpec alone = load_cluster_spec("cpu-2core");
  CHECK(search_plans({wishes(64, 4096), model, alone}, 1).remedy.find("more nodes could not be tried") == 0);

  PlanWishes small = wishes(8, 64);
  small.max_memory = 1 << 20;
  CHECK(search_plans({small, load_model_spec("tiny-llama"), alone}, 1).remedy.find("drop --max-memory") == 0);
}

TEST_CASE("search: the list names no plan twice for how finely its stages are cut") {
  const ModelSpec model = load_model_spec("llama-3-70b");
  const ClusterSpec c = cluster_of("h100-sxm", 8);
  const PlanAnswer answer = search_plans({wishes(512, 4096), model, c}, 20);
  for (size_t i = 0; i < answer.plans.size(); ++i)
    for (size_t j = i + 1; j < answer.plans.size(); ++j) {
      const Layout &a = answer.plans[i].layout, &b = answer.plans[j].layout;
      const bool twins = a.tp == b.tp && a.pp == b.pp && a.dp == b.dp && a.zero == b.zero &&
                         a.micro_batch == b.micro_batch && a.zero_group == b.zero_group && a.recompute == b.recompute &&
                         a.vpp > 1 && b.vpp > 1;
      if (twins) CHECK(answer.plans[j].step_s > 1.005 * answer.plans[i].step_s);
    }
}
