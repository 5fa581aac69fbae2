#include "libcore/bench/record/compare.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "libcore/base/error.h"

using namespace rw;

namespace {

BenchMetric metric(const std::string& name, std::vector<double> samples, MetricKind kind = MetricKind::time,
                   Better better = Better::lower) {
  BenchMetric m;
  m.name = name;
  m.unit = kind == MetricKind::time ? "s" : "";
  m.kind = kind;
  m.better = better;
  m.samples = std::move(samples);
  return m;
}

BenchRecord record(std::vector<BenchMetric> metrics, const std::string& name = "a") {
  BenchRecord r;
  r.bench = "train";
  r.name = name;
  r.machine = R"({"fingerprint":"00aa","cpu_model":"A","cpus":7})";
  r.config = "{}";
  r.metrics = std::move(metrics);
  return r;
}

const std::vector<double> kBase = {10.1, 9.8, 10.4, 10.0, 9.9, 10.2, 9.7};
const std::vector<double> kSlow = {10.9, 10.5, 11.2, 10.6, 10.4, 11.0, 10.8};

const MetricChange& only(const Comparison& c) {
  REQUIRE(c.cases.size() == 1);
  REQUIRE(c.cases[0].metrics.size() == 1);
  return c.cases[0].metrics[0];
}

ChangeVerdict verdict(const BenchMetric& base, const BenchMetric& now, const CompareSpec& spec = {}) {
  return only(compare_records({record({base})}, {record({now})}, spec)).change.verdict;
}

template <typename F>
std::string message_of(F&& run) {
  try {
    run();
  } catch (const Error& e) {
    return e.what();
  }
  return "(no error)";
}
#define HOLDS(text, part) CHECK_MESSAGE(std::string(text).find(part) != std::string::npos, (text))

}  // namespace

TEST_CASE("times by statistics, counts exactly, facts not at all") {
  CHECK(verdict(metric("t", kBase), metric("t", kSlow)) == ChangeVerdict::worse);
  CHECK(verdict(metric("t", kBase), metric("t", kBase)) == ChangeVerdict::same);
  CHECK(verdict(metric("t", kSlow, MetricKind::time, Better::higher),
                metric("t", kBase, MetricKind::time, Better::higher)) == ChangeVerdict::worse);
  const auto count = [](std::vector<double> v, Better better = Better::lower) {
    return metric("calls", std::move(v), MetricKind::count, better);
  };
  CHECK(verdict(count({1000000}), count({1000001})) == ChangeVerdict::worse);
  CHECK(verdict(count({1000000}), count({999999})) == ChangeVerdict::better);
  CHECK(verdict(count({8, 8}), count({8})) == ChangeVerdict::same);
  CHECK(verdict(count({8, 8}), count({8, 9})) == ChangeVerdict::worse);
  CHECK(verdict(count({0}), count({0})) == ChangeVerdict::same);
  CHECK(verdict(count({0}), count({1})) == ChangeVerdict::worse);
  CHECK(verdict(count({5}, Better::higher), count({4}, Better::higher)) == ChangeVerdict::worse);
  CHECK(verdict(count({5}), count({std::numeric_limits<double>::quiet_NaN()})) == ChangeVerdict::too_noisy);
  const Comparison fact = compare_records({record({metric("mfu", {1}, MetricKind::fact)})},
                                          {record({metric("mfu", {9}, MetricKind::fact)})}, {});
  CHECK(only(fact).kind == MetricKind::fact);
  CHECK_FALSE(fact.has_regression());
  CompareSpec ignore;
  ignore.counts = "ignore";
  CHECK_FALSE(compare_records({record({count({8})})}, {record({count({9})})}, ignore).has_regression());
}

TEST_CASE("several records of one case: a run is a sample, the median of its own") {
  std::vector<BenchRecord> base, now;
  for (size_t i = 0; i < kBase.size(); ++i) {
    base.push_back(record({metric("t", {kBase[i] - 1, kBase[i], 90})}));
    now.push_back(record({metric("t", {kSlow[i], kSlow[i] - 1, 100})}));
  }
  const Comparison c = compare_records(base, now, {});
  const MetricChange& m = only(c);
  CHECK(m.change.n_base == 7);
  CHECK(m.change.base == 10.0);
  CHECK(m.change.ratio == doctest::Approx(1.0769230769230766));
  CHECK(m.change.verdict == ChangeVerdict::worse);
  CHECK(c.cases[0].runs_now == 7);
  // Two runs of many samples are two samples.
  const Comparison two = compare_records({base[0], base[1]}, {now[0], now[1]}, {});
  CHECK(only(two).change.verdict == ChangeVerdict::too_noisy);
  const Comparison mixed = compare_records({base[0]}, now, {});
  HOLDS(mixed.cases[0].notes.at(0), "base has 1, new 7");
}

TEST_CASE("metrics by prefix and by glob; what only one side has is named") {
  const std::vector<BenchRecord> base = {
      record({metric("step_s", kBase), metric("step.data_s", kBase), metric("gone", kBase)})};
  const std::vector<BenchRecord> now = {
      record({metric("step_s", kBase), metric("step.data_s", kBase), metric("fresh", kBase)})};
  const Comparison all = compare_records(base, now, {});
  CHECK(all.cases[0].metrics.size() == 2);
  CHECK(all.cases[0].missing == std::vector<std::string>{"gone"});
  CHECK(all.cases[0].added == std::vector<std::string>{"fresh"});
  CompareSpec spec;
  spec.metric = {"step_"};
  CHECK(compare_records(base, now, spec).cases[0].metrics.size() == 1);
  CHECK(compare_records(base, now, spec).cases[0].missing.empty());
  spec.metric = {"*.data*"};
  CHECK(only(compare_records(base, now, spec)).name == "step.data_s");
  spec.metric = {"nothing"};
  HOLDS(message_of([&] { compare_records(base, now, spec); }), "found none");
}

TEST_CASE("cases by bench and name") {
  const Comparison c = compare_records({record({metric("t", kBase)}), record({metric("t", kBase)}, "gone")},
                                       {record({metric("t", kSlow)}), record({metric("t", kBase)}, "fresh")}, {});
  CHECK(c.cases.size() == 1);
  CHECK(c.missing == std::vector<std::string>{"train \"gone\""});
  CHECK(c.added == std::vector<std::string>{"train \"fresh\""});
  HOLDS(message_of([] { compare_records({record({}, "x")}, {record({}, "y")}, {}); }), "train \"x\"");
}

TEST_CASE("another machine: an error that says what differs, or a note") {
  BenchRecord base = record({metric("t", kBase)}), now = record({metric("t", kSlow)});
  now.machine = R"({"fingerprint":"00bb","cpu_model":"A","cpus":8})";
  const std::string message = message_of([&] { compare_records({base}, {now}, {}); });
  HOLDS(message, "00aa");
  HOLDS(message, "00bb");
  HOLDS(message, "cpus \"7\" and \"8\"");
  CHECK(message.find("cpu_model") == std::string::npos);
  CompareSpec any;
  any.any_machine = true;
  const Comparison c = compare_records({base}, {now}, any);
  CHECK(c.has_regression());
  HOLDS(c.cases[0].notes.at(0), "00bb");
}

TEST_CASE("a machine that was not quiet gives no verdict on times, but on counts") {
  BenchRecord base = record({metric("t", kBase), metric("calls", {3}, MetricKind::count)});
  BenchRecord now = record({metric("t", kSlow), metric("calls", {4}, MetricKind::count)});
  now.quiet = false;
  const Comparison c = compare_records({base}, {now}, {});
  CHECK(c.cases[0].metrics[0].change.verdict == ChangeVerdict::too_noisy);
  HOLDS(c.cases[0].metrics[0].change.why, "worse if the machine had been quiet");
  CHECK(c.cases[0].metrics[1].change.verdict == ChangeVerdict::worse);
  HOLDS(c.cases[0].notes.at(0), "not quiet when new was measured");
  CompareSpec noisy;
  noisy.noisy = true;
  CHECK(compare_records({base}, {now}, noisy).cases[0].metrics[0].change.verdict == ChangeVerdict::worse);
}

TEST_CASE("other flags are a note; other units an error; pairs have to be pairs") {
  BenchRecord base = record({metric("t", kBase)}), now = record({metric("t", kBase)});
  now.config = R"({"tp":2})";
  HOLDS(compare_records({base}, {now}, {}).cases[0].notes.at(0), "tp none -> 2");
  now.metrics[0].unit = "ms";
  HOLDS(message_of([&] { compare_records({base}, {now}, {}); }), "expected one unit");
  CompareSpec paired;
  paired.paired = true;
  now = record({metric("t", {1, 2, 3})});
  HOLDS(message_of([&] { compare_records({base}, {now}, paired); }), "found 7 and 3");
}

TEST_CASE("a metric is one thing within a side too") {
  const BenchRecord s = record({metric("t", kBase)});
  for (int i = 0; i < 3; ++i) {
    BenchRecord other = s;
    if (i == 0) other.metrics[0].unit = "ms";
    if (i == 1) other.metrics[0].kind = MetricKind::count;
    if (i == 2) other.metrics[0].better = Better::higher;
    HOLDS(message_of([&] { compare_records({s}, {s, other}, {}); }), "expected one unit");
    HOLDS(message_of([&] { compare_records({s, other}, {s}, {}); }), "expected one unit");
    HOLDS(message_of([&] { compare_records({s}, {other}, {}); }), "expected one unit");
  }
}

TEST_CASE("cases of two names, when asked for") {
  const std::vector<BenchRecord> base = {record({metric("t", kBase)}, "tp=1"), record({metric("t", kBase)}, "other")};
  const std::vector<BenchRecord> now = {record({metric("t", kSlow)}, "tp=2")};
  HOLDS(message_of([&] { compare_records(base, now, {}); }), "--pair BASE=NEW");
  CompareSpec spec;
  spec.pair = {"tp=1=tp=2"};
  const Comparison c = compare_records(base, now, spec);
  CHECK(c.has_regression());
  REQUIRE(c.cases.size() == 1);
  CHECK(c.cases[0].name == "tp=1");
  HOLDS(c.cases[0].notes.at(0), "new is \"tp=2\"");
  spec.pair = {"tp=1=tp=3"};
  HOLDS(message_of([&] { compare_records(base, now, spec); }), "found base \"tp=1\", \"other\" and new \"tp=2\"");
}

TEST_CASE("no number of samples makes up for a crowded machine") {
  BenchRecord base = record({metric("t", {1, 2, 3, 4})}), now = record({metric("t", {1.5, 2, 3, 4})});
  HOLDS(compare_records({base}, {now}, {}).cases[0].metrics[0].change.why, "more than 1000 samples a side");
  now.quiet = false;
  HOLDS(compare_records({base}, {now}, {}).cases[0].metrics[0].change.why, "measure on a quiet machine");
}

TEST_CASE("counts are shown in full, with their difference") {
  const Comparison c = compare_records({record({metric("bytes", {197500}, MetricKind::count)})},
                                       {record({metric("bytes", {197508}, MetricKind::count)})}, {});
  HOLDS(comparison_text(c, {}), "197500");
  HOLDS(comparison_text(c, {}), "197508");
  HOLDS(comparison_text(c, {}), "+8");
  HOLDS(comparison_summary({c}), "bytes +0.0 % (+8)");
}

TEST_CASE("200 metrics that did not change do not alarm; one of them that did is found") {
  std::mt19937_64 random(4);
  std::normal_distribution<double> normal;
  std::vector<BenchMetric> base, now;
  for (int i = 0; i < 200; ++i) {
    std::vector<double> b, n;
    for (int k = 0; k < 5; ++k) b.push_back(1 + 0.03 * normal(random)), n.push_back(1 + 0.03 * normal(random));
    base.push_back(metric("kernel." + std::to_string(i), b));
    now.push_back(metric("kernel." + std::to_string(i), n));
  }
  CHECK_FALSE(compare_records({record(base)}, {record(now)}, {}).has_regression());
  int alone = 0;
  for (size_t i = 0; i < base.size(); ++i) alone += verdict(base[i], now[i]) == ChangeVerdict::worse;
  CHECK(alone > 0);  // what the control is for
  for (double& v : now[77].samples) v *= 1.4;
  const Comparison c = compare_records({record(base)}, {record(now)}, {});
  CHECK(c.count(ChangeVerdict::worse) == 1);
  CHECK(c.cases[0].metrics[77].change.verdict == ChangeVerdict::worse);
}

TEST_CASE("thresholds") {
  CHECK(parse_threshold("5%") == doctest::Approx(0.05));
  CHECK(parse_threshold("0.025") == doctest::Approx(0.025));
  for (const char* bad : {"5", "0", "-1%", "100%", "", "%", "five", "5 %"})
    HOLDS(message_of([&] { parse_threshold(bad); }), "expected a share");
}

TEST_CASE("for people and for programs") {
  Comparison c = compare_records({record({metric("step_s", kBase), metric("mfu", {0.5}, MetricKind::fact)})},
                                 {record({metric("step_s", kSlow), metric("mfu", {0.4}, MetricKind::fact)})}, {});
  c.base = "old.json";
  c.now = "new.json";
  const std::string text = comparison_text(c, {});
  HOLDS(text, "old.json -> new.json");
  HOLDS(text, "+7.7 %");
  HOLDS(text, "worse");
  CHECK(text.find("mfu") == std::string::npos);
  HOLDS(comparison_text(c, {.facts = true}), "(not judged)");
  HOLDS(comparison_summary({c}), "REGRESSION: 1 worse: step_s +7.7 %");
  const Json json = comparison_json(c);
  CHECK(json["regression"] == true);
  CHECK(json["verdicts"]["worse"] == 1);
  CHECK(json["cases"][0]["metrics"][0]["verdict"] == "worse");
  CHECK(json["cases"][0]["metrics"][1]["verdict"].is_null());
  CHECK(json["cases"][0]["metrics"][0]["n_new"] == 7);
  const Comparison one = compare_records({record({metric("t", {1})})}, {record({metric("t", {2})})}, {});
  HOLDS(comparison_summary({one}), "no regression: 1 too noisy");
  CHECK(comparison_json(one)["cases"][0]["metrics"][0]["low"].is_null());
}
