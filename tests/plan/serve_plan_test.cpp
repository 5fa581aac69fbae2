#include "libcore/plan/serve/serve_plan.h"

#include <doctest/doctest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/spec/tensor_parallel.h"

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

// Slow enough that odd_model's steps take milliseconds. Every number is made up.
ClusterSpec cluster(int64_t nodes = 2) {
  DeviceType d;
  d.name = "slow";
  d.memory = 64 << 20;
  d.peak_bf16 = d.peak_f32 = 1e12;
  d.memory_bandwidth = 2e9;
  d.compute_units = 7;
  d.price = 1;
  d.gemm_fraction = d.attention_fraction = d.memory_fraction = d.link_fraction = 1;
  NodeType n;
  n.name = "box";
  n.device = "slow";
  n.count = nodes;
  n.devices = 4;
  n.link_bandwidth = 1e10;
  n.nic_bandwidth = 1e9;
  n.nics = 4;
  n.nic_latency = 1e-5;
  ClusterSpec c;
  c.name = "made up";
  c.devices = {d};
  c.nodes = {n};
  return c;
}

ServePlanSpec spec() {
  ServePlanSpec s;
  s.serve.model = "odd";
  s.serve.slo_ttft_ms = 200;
  s.serve.slo_itl_ms = 30;
  s.serve.max_model_len = 1024;
  s.serve.max_num_seqs = 16;
  s.serve.max_batch_tokens = 128;
  s.mode = "colocated";
  return s;
}

ServePlan plan_of(const ServePlanSpec& s, const ClusterSpec& c, const Workload& w) {
  const ModelSpec m = model();
  return plan_serving({.model = m, .cluster = c, .workload = w, .spec = s});
}

const ServeAdvice* advice_of(const ServePlan& plan, const std::string& kind) {
  for (const ServeAdvice& a : plan.advice)
    if (a.kind == kind) return &a;
  return nullptr;
}

ServeInstance instance(const ServePlanSpec& s, const ClusterSpec& c, int64_t tp = 1) {
  const ModelSpec m = model();
  return make_instance({.model = m, .spec = s.serve, .cluster = c, .tp = tp});
}

}  // namespace

TEST_CASE("the memory of a device by hand") {
  const ServeInstance one = instance(spec(), cluster());
  // bf16 products: qkv (8+2*4)*32 by 256, out 256 by 256, up 1400 by 256, down 256 by 700, head 1009 by 256; f32
  // embedding 1009 by 256 and seven norms of 256. Blocks are padded to 4 KiB.
  const int64_t products = 3 * (512 * 256 + 256 * 256 + 1400 * 256 + 256 * 700) + 1009 * 256,
                bytes = 2 * products + 4 * (1009 * 256 + 7 * 256);
  CHECK(one.memory.weights >= bytes);
  CHECK(one.memory.weights < bytes + 32 * 4096);
  // A page: 16 tokens, 3 layers, keys and values, 4 heads of 32, 2 bytes.
  CHECK(one.memory.page_bytes == 16 * 3 * 2 * 4 * 32 * 2);
  CHECK(one.memory.kv_bytes_per_token() == 3 * 2 * 4 * 32 * 2);
  const double budget = 0.9 * (64 << 20);
  CHECK(one.memory.weights + one.memory.runtime + one.memory.kv <= budget);
  CHECK(one.scheduler.n_pages == one.memory.n_pages);
  CHECK(one.memory.full_sequences == doctest::Approx(static_cast<double>(one.memory.n_pages) / 64));
  const ServeInstance two = instance(spec(), cluster(), 2);
  CHECK(two.memory.page_bytes * 2 == one.memory.page_bytes);
  CHECK(two.memory.weights < one.memory.weights);
  ServePlanSpec small = spec();
  small.serve.kv_dtype = "int8";
  CHECK(instance(small, cluster()).memory.page_bytes == 16 * 3 * 2 * 4 * (32 + 4));
}

TEST_CASE("at hardly any load the first token takes the price of its prompt") {
  const Workload w = describe_workload("in=301,out=3,rate=0.05,requests=40,burst=0", 1);
  const ServePlan plan = plan_of(spec(), cluster(), w);
  REQUIRE(plan.feasible());
  ServeInstance one = instance(spec(), cluster());
  double expected = 0;  // chunks of 128, 128, 45
  for (const auto& [first, n] : {std::pair<int64_t, int64_t>{0, 128}, {128, 128}, {256, 45}}) {
    PricedStep s;
    s.add(first, n, first + n == 301);
    expected += one.price->seconds(s);
  }
  PricedStep decode;
  decode.add(301, 1, true);
  const ServeOption& o = plan.options.front();
  CHECK(o.server.tp == 1);
  CHECK(o.server.replicas == 1);
  CHECK(o.stats.ttft_s.p99 == doctest::Approx(expected).epsilon(1e-6));
  CHECK(o.lone_ttft_s == doctest::Approx(expected).epsilon(1e-6));
  CHECK(o.stats.itl_s.p50 == doctest::Approx(one.price->seconds(decode)).epsilon(1e-3));
  CHECK(o.stats.attainment == 1);
}

TEST_CASE("what the host takes between steps is added to each; a mean gap is kept where a worst one is not") {
  const Workload w = describe_workload("in=301,out=3,rate=0.05,requests=40,burst=0", 1);
  ServePlanSpec s = spec();
  s.tp = "1";
  const ServeOption plain = plan_of(s, cluster(), w).options.front();
  s.step_overhead_ms = 2;
  const ServeOption slower = plan_of(s, cluster(), w).options.front();
  CHECK(slower.stats.ttft_s.p50 == doctest::Approx(plain.stats.ttft_s.p50 + 3 * 0.002).epsilon(1e-6));
  CHECK(slower.stats.itl_s.p50 == doctest::Approx(plain.stats.itl_s.p50 + 0.002).epsilon(1e-3));
  // Long prompts beside running streams.
  const Workload mixed = describe_workload("in=900,out=60,rate=8,requests=200", 1);
  s = spec();
  s.tp = "1";
  s.replicas = "1";
  s.serve.slo_itl_ms = 1000 * plan_of(s, cluster(), mixed).options.front().stats.itl_s.p90;
  const double worst = plan_of(s, cluster(), mixed).options.front().stats.itl_attainment;
  s.itl_of = "mean";
  CHECK(plan_of(s, cluster(), mixed).options.front().stats.itl_attainment > worst);
}

TEST_CASE("the text has a line for each of the first options, and what is wrong with them") {
  const Workload w = describe_workload("in=100,out=20,requests=50,rate=1", 3);
  ServePlanSpec s = spec();
  s.top = 2;
  const ModelSpec m = model();
  const ClusterSpec c = cluster();
  const ServePlanQuery q{.model = m, .cluster = c, .workload = w, .spec = s};
  const std::string text = serve_plan_text(q, plan_serving(q));
  CHECK(text.find("* colocated 1 x tp 1 ") != std::string::npos);
  CHECK(text.find("1 x tp 2") != std::string::npos);
  CHECK(text.find("1 x tp 4") == std::string::npos);
  s.serve.slo_itl_ms = 0.001;
  const std::string none = serve_plan_text(q, plan_serving(q));
  CHECK(none.find("even alone") != std::string::npos);
  CHECK(none.find("would keep it: --slo-ttft-ms") != std::string::npos);
}

TEST_CASE("the same question has the same answer") {
  const Workload w = describe_workload("in=20..400,out=5..40,rate=9,requests=150,burst=2", 3);
  ServePlanSpec s = spec();
  s.mode = "auto";
  const ModelSpec m = model();
  const ClusterSpec c = cluster();
  const ServePlanQuery q{.model = m, .cluster = c, .workload = w, .spec = s};
  CHECK(serve_plan_json(q, plan_serving(q)).dump() == serve_plan_json(q, plan_serving(q)).dump());
}

TEST_CASE("more bandwidth never makes gaps longer; a looser objective keeps no fewer") {
  const Workload w = describe_workload("in=20..400,out=5..40,rate=6,requests=200", 3);
  ServePlanSpec s = spec();
  s.replicas = "2";
  s.tp = "1";
  double last = 1e9;
  for (const double factor : {1.0, 1.5, 4.0}) {
    ClusterSpec c = cluster();
    c.devices[0].memory_bandwidth *= factor;
    const double itl = plan_of(s, c, w).options.front().stats.itl_s.p50;
    CHECK(itl <= last);
    last = itl;
  }
  double goodput = -1;
  for (const double slack : {0.3, 0.6, 1.0, 3.0}) {
    s.serve.slo_ttft_ms = 60 * slack;
    s.serve.slo_itl_ms = 20 * slack;
    const ServeOption o = plan_of(s, cluster(), w).options.front();
    CHECK(o.stats.goodput >= goodput);
    goodput = o.stats.goodput;
  }
}

TEST_CASE("replicas follow the rate, and what is planned for keeps the objective") {
  ServePlanSpec s = spec();
  s.tp = "1";
  int64_t last = 0;
  for (const char* rate : {"5", "100", "500"}) {
    const Workload w = describe_workload(std::string("in=200,out=20,requests=400,rate=") + rate, 3);
    const ServePlan plan = plan_of(s, cluster(8), w);
    REQUIRE(plan.feasible());
    const ServeOption& o = plan.options.front();
    CHECK(o.server.replicas >= last);
    CHECK(o.stats.attainment >= 0.99);
    CHECK(o.devices == o.server.replicas);
    CHECK(o.cost_per_hour == o.devices);
    last = o.server.replicas;
  }
  CHECK(last > 1);
}

TEST_CASE("what is advised would keep the objective") {
  const Workload w = describe_workload("in=200,out=20,requests=400,rate=3000", 3);
  ServePlanSpec s = spec();
  const ServePlan plan = plan_of(s, cluster(1), w);
  REQUIRE(!plan.feasible());
  REQUIRE(!plan.advice.empty());
  for (size_t i = 1; i < plan.advice.size(); ++i) CHECK(plan.advice[i - 1].change <= plan.advice[i].change);
  const ServeAdvice* rate = advice_of(plan, "rate");
  REQUIRE(rate != nullptr);
  const double sustained = std::stod(rate->text.substr(std::string("at most ").size()));
  CHECK(sustained < 3000);
  CHECK(plan_of(s, cluster(1),
                describe_workload("in=200,out=20,requests=400,rate=" + std::to_string(0.97 * sustained), 3))
            .feasible());
  const ServeAdvice* nodes = advice_of(plan, "nodes");
  REQUIRE(nodes != nullptr);
  CHECK(plan_of(s, cluster(std::stoll(nodes->text.substr(std::string("--nodes ").size()))), w).feasible());
}

TEST_CASE("an objective that no load meets: what could be met is said, and is met") {
  const Workload w = describe_workload("in=200,out=20,requests=200,rate=2", 3);
  ServePlanSpec s = spec();
  s.serve.slo_ttft_ms = 0.01;
  const ServePlan plan = plan_of(s, cluster(1), w);
  REQUIRE(!plan.feasible());
  CHECK(plan.options.front().why.find("even alone") != std::string::npos);
  const ServeAdvice* slo = advice_of(plan, "slo");
  REQUIRE(slo != nullptr);
  s.serve.slo_ttft_ms = std::stod(slo->text.substr(std::string("--slo-ttft-ms ").size()));
  s.serve.slo_itl_ms = std::stod(slo->text.substr(slo->text.find("--slo-itl-ms ") + 13));
  CHECK(plan_of(s, cluster(1), w).feasible());
}

TEST_CASE("a model that does not fit says so, and what would") {
  const Workload w = describe_workload("in=100,out=20,requests=50,rate=1", 3);
  ServePlanSpec s = spec();
  s.serve.max_model_len = 0;  // the model's 2048 tokens
  ClusterSpec c = cluster(1);
  c.devices[0].memory = 46 << 20;  // cuBLASLt's workspace, and the rest
  s.tp = "1";
  const ServePlan plan = plan_of(s, c, w);
  REQUIRE(!plan.feasible());
  CHECK(plan.options.front().devices == 0);
  CHECK(plan.options.front().why.find("weights take") != std::string::npos);
  const ServeAdvice* context = advice_of(plan, "context");
  REQUIRE(context != nullptr);
  s.serve.max_model_len = std::stoll(context->text.substr(std::string("--max-model-len ").size()));
  CHECK(s.serve.max_model_len >= 120);
  CHECK(plan_of(s, c, w).feasible());
  REQUIRE(advice_of(plan, "tp") != nullptr);
}

TEST_CASE("requests that are too long are counted and named") {
  Workload w = describe_workload("in=100,out=20,requests=50,rate=1", 3);
  w.requests[7].input = 3000;
  const ServePlan plan = plan_of(spec(), cluster(1), w);
  REQUIRE(!plan.feasible());  // 98 %
  CHECK(plan.options.front().stats.refused == 1);
  const ServeAdvice* context = advice_of(plan, "context");
  REQUIRE(context != nullptr);
  CHECK(context->text.find("1 requests of more than 1024 tokens") != std::string::npos);
}

TEST_CASE("prefill and decode apart: keys and values cross the network") {
  const Workload w = describe_workload("in=200,out=20,requests=200,rate=3", 3);
  ServePlanSpec s = spec();
  s.mode = "split";
  s.tp = "1,2";
  const ServePlan plan = plan_of(s, cluster(4), w);
  REQUIRE(plan.feasible());
  for (const ServeOption& o : plan.options) {
    CHECK(o.split);
    CHECK(o.devices == o.server.tp * o.server.replicas + o.decoder.tp * o.decoder.replicas);
    // 768 values of 2 bytes a token, over a NIC of 1 GB/s for each device of the smaller server, and its latency.
    const double links = static_cast<double>(std::min(o.server.tp, o.decoder.tp));
    CHECK(o.handoff_s == doctest::Approx(1e-5 + 200 * 768 * 2 / (links * 1e9)).epsilon(1e-9));
  }
  // Streams meet no prompts: their longest gaps are the hand-over or a step of at most all sequences.
  ServePlanSpec mixed = spec();
  mixed.tp = "1";
  CHECK(plan.options.front().stats.itl_s.p99 < plan_of(mixed, cluster(4), w).options.front().stats.itl_s.p99);
}

TEST_CASE("a slower network between prefill and decode never helps") {
  const Workload w = describe_workload("in=200,out=20,requests=200,rate=3", 3);
  ServePlanSpec s = spec();
  s.mode = "split";
  s.tp = "1";
  s.replicas = "5";
  double last = 2;
  for (const double bandwidth : {1e9, 3e7, 1e7, 1e6}) {
    ClusterSpec c = cluster(4);
    c.nodes[0].nic_bandwidth = bandwidth;
    const ServePlan plan = plan_of(s, c, w);
    const double kept = plan.options.front().split ? plan.options.front().stats.itl_attainment : 0;
    CHECK(kept <= last);
    last = kept;
  }
  CHECK(last == 0);
}

TEST_CASE("flags that contradict each other") {
  ServePlanSpec s = spec();
  s.tp = "3";
  const Workload w = describe_workload("in=10,out=2,rate=1,requests=3", 1);
  CHECK_THROWS_WITH_AS(plan_of(s, cluster(), w), doctest::Contains("--tp 3"), Error);
  s.tp = "1,x";
  CHECK_THROWS_WITH_AS(s.tps(), doctest::Contains("found \"x\""), Error);
  s = spec();
  s.replicas = "some";
  CHECK_THROWS_WITH_AS(s.fixed_replicas(), doctest::Contains("--replicas"), Error);
  s = spec();
  s.serve.slo_itl_ms = 0;
  CHECK_THROWS_WITH_AS(check_serve_plan_spec(s), doctest::Contains("--slo-itl-ms"), Error);
  s = spec();
  s.mode = "split";
  s.replicas = "1";
  CHECK_THROWS_WITH_AS(check_serve_plan_spec(s), doctest::Contains("--mode split"), Error);
  s = spec();
  s.serve.kv_dtype = "f32";
  CHECK_THROWS_WITH_AS(plan_of(s, cluster(), w), doctest::Contains("--kv-dtype"), Error);
  s = spec();
  s.serve.precision = "f32";
  ClusterSpec c = cluster();
  c.devices[0].peak_f32 = 0;
  CHECK_THROWS_WITH_AS(plan_of(s, c, w), doctest::Contains("peak"), Error);
}
