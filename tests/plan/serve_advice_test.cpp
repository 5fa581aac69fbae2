#include "libcore/plan/serve/serve_advice.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "libcore/base/error.h"
#include "libcore/plan/serve/serve_plan.h"

using namespace rw;

namespace {

ModelSpec model() {
  ModelSpec m;
  m.vocab_size = 1009;
  m.width = 256;
  m.layers = 3;
  m.heads = 8;
  m.kv_heads = 4;
  m.head_dim = 32;
  m.ffn = 700;
  m.max_position = 2048;
  return m;
}

// One node of two devices, without a network; every number is made up.
ClusterSpec lone_node() {
  DeviceType d;
  d.name = "slow";
  d.memory = 64 << 20;
  d.peak_bf16 = d.peak_f32 = 1e12;
  d.memory_bandwidth = 2e9;
  d.compute_units = 7;
  d.gemm_fraction = d.attention_fraction = d.memory_fraction = d.link_fraction = 1;
  NodeType n;
  n.name = "box";
  n.device = "slow";
  n.count = 1;
  n.devices = 2;
  n.link_bandwidth = 1e10;
  ClusterSpec c;
  c.name = "made up";
  c.devices = {d};
  c.nodes = {n};
  return c;
}

ClusterSpec networked() {
  ClusterSpec c = lone_node();
  c.nodes[0].nic_bandwidth = 1e9;
  c.nodes[0].nics = 2;
  return c;
}

ServePlanSpec spec() {
  ServePlanSpec s;
  s.serve.model = "odd";
  s.serve.slo_ttft_ms = 500;
  s.serve.slo_itl_ms = 50;
  s.serve.max_model_len = 1024;
  s.serve.max_num_seqs = 16;
  s.serve.max_batch_tokens = 128;
  return s;
}

ServePlan plan_of(const ServePlanSpec& s, const ClusterSpec& c, const Workload& w) {
  const ModelSpec m = model();
  return plan_serving({.model = m, .cluster = c, .workload = w, .spec = s});
}

// Every flag that the text begins with is set; what stands in brackets or after a colon is for people.
struct Followed {
  ServePlanSpec spec;
  ClusterSpec cluster;
};
bool follow(const ServeAdvice& advice, Followed& f) {
  std::string text = advice.text.substr(0, advice.text.find_first_of("(:"));
  if (!text.starts_with("--")) return false;
  const FieldList list = fields(f.spec);
  for (size_t at = 0; (at = text.find("--", at)) != std::string::npos;) {
    const size_t space = text.find(' ', at), end = std::min(text.find(' ', space + 1), text.size());
    const std::string name = text.substr(at + 2, space - at - 2), value = text.substr(space + 1, end - space - 1);
    if (name == "nodes") set_node_count(f.cluster, std::stoll(value));
    else {
      const Field* field = find_field(list, name);
      REQUIRE(field != nullptr);
      set_field(*field, value, "advice");
    }
    at = end;
  }
  return true;
}

// Whether all advice that names flags works with all else as it was; how much of it there is.
int64_t followed(const ServePlanSpec& s, const ClusterSpec& c, const Workload& w) {
  const ServePlan plan = plan_of(s, c, w);
  REQUIRE(!plan.feasible());
  int64_t n = 0;
  for (const ServeAdvice& a : plan.advice) {
    CAPTURE(a.text);
    Followed f{.spec = s, .cluster = c};
    if (!follow(a, f)) continue;
    CHECK(plan_of(f.spec, f.cluster, w).feasible());
    ++n;
  }
  return n;
}

const ServeAdvice* advice_of(const ServePlan& plan, const std::string& kind) {
  for (const ServeAdvice& a : plan.advice)
    if (a.kind == kind) return &a;
  return nullptr;
}

}  // namespace

TEST_CASE(
    "a pair of servers with too few devices: the mode or the degree is named, nodes only where there is a network") {
  const Workload w = describe_workload("in=100,out=5,rate=1,requests=50", 1);
  ServePlanSpec s = spec();
  s.mode = "split";
  s.tp = "2";
  const ServePlan alone = plan_of(s, lone_node(), w);
  REQUIRE(advice_of(alone, "mode") != nullptr);
  CHECK(advice_of(alone, "mode")->text.starts_with("--mode colocated"));
  REQUIRE(advice_of(alone, "tp") != nullptr);
  CHECK(advice_of(alone, "tp")->text.starts_with("--tp 1"));
  CHECK(advice_of(alone, "slo") == nullptr);  // the objective is not what is missed
  CHECK(advice_of(alone, "nodes") == nullptr);
  REQUIRE(advice_of(alone, "network") != nullptr);
  CHECK(advice_of(alone, "network")->text.find("does not describe") != std::string::npos);
  CHECK(followed(s, lone_node(), w) >= 2);
  CHECK(advice_of(plan_of(s, networked(), w), "nodes")->text.starts_with("--nodes 2"));
  CHECK(followed(s, networked(), w) >= 3);
}

TEST_CASE("advice works when it is followed, whatever was asked") {
  ServePlanSpec s = spec();
  s.replicas = "2";
  s.tp = "2";
  CHECK(followed(s, lone_node(), describe_workload("in=100,out=5,rate=1,requests=50", 1)) >= 2);
  for (const char* mode : {"colocated", "split", "auto"}) {
    s = spec();
    s.mode = mode;
    s.serve.slo_ttft_ms = 0.01;
    CAPTURE(mode);
    CHECK(followed(s, networked(), describe_workload("in=200,out=20,requests=100,rate=2", 3)) >= 1);
    s.serve.slo_ttft_ms = 200;
    s.serve.slo_itl_ms = 25;
    CHECK(followed(s, networked(), describe_workload("in=200,out=20,requests=200,rate=2000", 3)) >= 1);
  }
}

TEST_CASE("prompts that wait for small chunks: larger ones are advised") {
  ServePlanSpec s = spec();
  s.mode = "colocated";
  s.tp = "1";
  s.serve.max_batch_tokens = 8;
  s.serve.slo_ttft_ms = 100;  // steps read 3.6 MB at 2 GB/s: 600 tokens in chunks of 8 take 75 of them
  s.serve.slo_itl_ms = 500;
  const Workload w = describe_workload("in=600,out=5,rate=1,requests=50", 1);
  const ServePlan plan = plan_of(s, lone_node(), w);
  REQUIRE(!plan.feasible());
  REQUIRE(advice_of(plan, "batch-tokens") != nullptr);
  CHECK(advice_of(plan, "batch-tokens")->text.starts_with("--max-batch-tokens "));
  CHECK(followed(s, lone_node(), w) >= 1);
}

TEST_CASE("too little --memory is offered enough; more than a device has is refused") {
  const Workload w = describe_workload("in=100,out=5,rate=1,requests=50", 1);
  ServePlanSpec s = spec();
  for (const int64_t memory : {int64_t{1}, int64_t{1} << 20}) {
    s.serve.memory = memory;
    const ServePlan plan = plan_of(s, lone_node(), w);
    REQUIRE(!plan.feasible());
    REQUIRE(advice_of(plan, "memory") != nullptr);
    CHECK(followed(s, lone_node(), w) >= 1);
    const ServePlanQuery q{.model = model(), .cluster = lone_node(), .workload = w, .spec = s};
    CHECK(serve_plan_json(q, plan)["options"][0]["predicted"].is_null());
  }
  s.serve.memory = int64_t{64} << 20;
  CHECK(plan_of(s, lone_node(), w).feasible());
  s.serve.memory = int64_t{1000} << 30;
  CHECK_THROWS_WITH_AS(plan_of(s, lone_node(), w), doctest::Contains("64.0 MiB"), Error);
  CHECK_THROWS_WITH_AS(plan_of(s, lone_node(), w), doctest::Contains("1000.0 GiB"), Error);
}

TEST_CASE("times of devices that were not measured are guesses; load is the share of what is sustained") {
  const Workload w = describe_workload("in=100,out=5,rate=3,requests=50", 1);
  ServePlanSpec s = spec();
  s.mode = "colocated";
  s.tp = "1";
  const ServeOption o = plan_of(s, lone_node(), w).options.front();
  CHECK(o.provenance == Provenance::guess);
  CHECK(o.server.load == doctest::Approx(3 / (static_cast<double>(o.server.replicas) * o.server.rate)));
  ClusterSpec c = lone_node();
  c.devices[0].provenance = "measured";
  CHECK(plan_of(s, c, w).options.front().provenance == Provenance::measured);
  const ModelSpec m = model();
  const ServePlanQuery q{.model = m, .cluster = c, .workload = w, .spec = s};
  const std::string text = serve_plan_text(q, plan_serving(q));
  CHECK(text.find("a step was running") != std::string::npos);
  CHECK(text.find("of the rate it sustains") != std::string::npos);
  CHECK(text.find("$/hour") != std::string::npos);
}
