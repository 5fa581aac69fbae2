#include "libcore/plan/long_run/scale.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "libcore/base/error.h"

using namespace rw;

namespace {

using Nodes = std::vector<int64_t>;

std::string message_of(const std::string& list) {
  try {
    parse_node_list(list);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

// A strong-scaling row: 1000 tokens a step on 8 devices a node.
ScaleRow row(int64_t nodes, const StepSeconds& time) {
  ScaleRow r{.nodes = nodes, .devices = 8 * nodes, .global_batch = 10, .plan = Prediction{}, .nothing = {}};
  r.plan->time = time;
  r.plan->step_s = time.total();
  r.plan->tokens_per_s = 1000 / r.plan->step_s;
  return r;
}

}  // namespace

TEST_CASE("sizes") {
  CHECK(parse_node_list("1..64") == Nodes{1, 2, 4, 8, 16, 32, 64});
  CHECK(parse_node_list("3..13") == Nodes{3, 6, 12});
  CHECK(parse_node_list("6,1,2,6") == Nodes{1, 2, 6});
  CHECK(parse_node_list("1..4,3") == Nodes{1, 2, 3, 4});
  for (const char* bad : {"", "0", "4..2", "1,,2", "a", "1..", "..4", "1.5", "99999999"})
    CHECK_MESSAGE(message_of(bad).find("--nodes: expected") == 0, bad);
}

TEST_CASE("efficiency, knees and what bends the curve, by hand") {
  ScaleAnswer answer;
  answer.rows = {row(1, {.compute = 7, .exposed_dp = 0.5, .bubble = 0.25, .optimizer = 0.25}),
                 row(2, {.compute = 3.5, .exposed_dp = 0.5, .bubble = 0.25, .optimizer = 0.25}),
                 {.nodes = 3, .devices = 24, .global_batch = 10, .plan = {}, .nothing = "10 samples"},
                 row(4, {.compute = 1.75, .exposed_dp = 1, .bubble = 0.1875, .optimizer = 0.0625}),
                 row(8, {.compute = 0.875, .exposed_dp = 1, .bubble = 0.125, .optimizer = 0})};
  analyse_scaling(answer);
  CHECK(answer.rows[0].efficiency == 1);
  CHECK(answer.rows[1].efficiency == doctest::Approx(8 / 9.0));
  CHECK(answer.rows[3].efficiency == doctest::Approx(8 / 12.0));
  CHECK(answer.rows[4].efficiency == doctest::Approx(0.5));
  CHECK(answer.below_80 == 4);
  CHECK(answer.below_50 == 0);
  CHECK(answer.bends_at == 4);
  // Node-seconds of a step: 8 and 12; data-parallel 0.5 -> 4, bubble 0.25 -> 0.75, compute and optimizer as before.
  REQUIRE(answer.loss.size() == 6);
  CHECK(answer.loss[0].term == "exposed_dp");
  CHECK(answer.loss[0].share == doctest::Approx(3.5 / 4));
  CHECK(answer.loss[1].term == "bubble");
  CHECK(answer.loss[1].share == doctest::Approx(0.5 / 4));
  CHECK(answer.loss[5].share == doctest::Approx(0));
  REQUIRE(answer.fit.has_value());
  const std::string text = scale_text(answer);
  CHECK(text.find("below 80 % from 4 nodes") != std::string::npos);
  CHECK(text.find("nothing fits: 10 samples") != std::string::npos);
  CHECK(text.find("87.5 %  exposed_dp") != std::string::npos);
  const Json json = scale_json(answer);
  CHECK(json["rows"][2]["plan"].is_null());
  CHECK(json["below_50"].is_null());
  CHECK(json["loss"]["exposed_dp"].get<double>() == doctest::Approx(0.875));
}

TEST_CASE("the fit of a strong scaling curve is the law of its steps") {
  // Steps of 9.5 / N + 0.5 + 0.02 N seconds: t1 = 10, P = 0.05, c = 0.002.
  ScaleAnswer answer;
  for (const int64_t n : {1, 2, 4, 8, 16, 32}) {
    const auto nodes = static_cast<double>(n);
    answer.rows.push_back(row(n, {.compute = 9.5 / nodes, .exposed_dp = 0.02 * nodes, .optimizer = 0.5}));
  }
  analyse_scaling(answer);
  REQUIRE(answer.fit.has_value());
  CHECK(answer.fit->law.p == doctest::Approx(0.05));
  CHECK(answer.fit->law.c == doctest::Approx(0.002));
  CHECK(answer.fit->law.t1 == doctest::Approx(10.0 / 1000));
  CHECK(answer.below_50 == 16);  // 10.02 / 16 against 9.5 / 16 + 0.5 + 0.32
}

TEST_CASE("sizes that lack memory are no part of the law") {
  // One node recomputes everything: two do better per device, and from there a share of 0.25 s does not shrink.
  ScaleAnswer answer;
  answer.rows = {row(1, {.compute = 12})};
  for (const int64_t n : {2, 4, 8, 16})
    answer.rows.push_back(row(n, {.compute = 8 / static_cast<double>(n), .optimizer = 0.25}));
  analyse_scaling(answer);
  CHECK(answer.best_nodes == 2);
  CHECK(answer.rows[0].efficiency == doctest::Approx(8.5 / 12));
  CHECK(answer.rows[1].efficiency == 1);
  CHECK(answer.below_80 == 16);  // 8.5 of 12 node-seconds; 8 nodes: 8.5 of 10
  REQUIRE(answer.fit.has_value());
  CHECK(answer.fit->law.p == doctest::Approx(0.25 / 8.25));
  CHECK(answer.loss[0].term == "optimizer");
  CHECK(answer.loss[0].share == doctest::Approx(1));
}

TEST_CASE("one size, or none that fits") {
  ScaleAnswer one;
  one.rows = {row(4, {.compute = 1})};
  analyse_scaling(one);
  CHECK(one.bends_at == 0);
  CHECK_FALSE(one.fit.has_value());
  CHECK(scale_text(one).find("no law") != std::string::npos);
  ScaleAnswer none;
  none.rows = {{.nodes = 1, .devices = 8, .global_batch = 1, .plan = {}, .nothing = "too big"}};
  analyse_scaling(none);
  CHECK(scale_json(none)["rows"][0]["nothing_fits"] == "too big");
}

TEST_CASE("every size has its best plan, or says why it has none") {
  ScaleQuestion question;
  question.spec.model = "tiny-llama";
  question.spec.cluster = "h100-sxm";
  question.spec.global_batch = 12;
  question.spec.seq_len = 32;
  question.spec.tp = 1;
  question.spec.pp = 1;
  question.spec.dp = 0;
  question.nodes = {1, 3, 6};
  int64_t seen = 0;
  // 8, 24 and 48 replicas: none divides 12 samples.
  CHECK_THROWS_AS(scale_plans(question, [&](int64_t) { ++seen; }), Error);
  CHECK(seen == 3);
  question.spec.global_batch = 24;
  const ScaleAnswer strong = scale_plans(question, [](int64_t) {});
  REQUIRE(strong.rows.size() == 3);
  CHECK(strong.rows[1].plan->layout.dp == 24);
  CHECK_FALSE(strong.rows[2].plan.has_value());
  CHECK(strong.rows[2].nothing != "");
  question.batch_per_device = 2;
  const ScaleAnswer weak = scale_plans(question, [](int64_t) {});
  CHECK(weak.rows[2].global_batch == 96);
  CHECK(weak.rows[2].plan->layout.dp == 48);
  CHECK(weak.fit.has_value());
}
