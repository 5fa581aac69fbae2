#include "libcore/plan/serve/workload.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "libcore/base/error.h"

using namespace rw;

namespace {

std::string error_of(const auto& body) {
  try {
    body();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a trace: milliseconds, lengths, hash ids, any order of lines") {
  const Workload w = parse_trace(
      "{\"timestamp\": 3000, \"input_length\": 1100, \"output_length\": 7, \"hash_ids\": [0, 5, 6]}\n"
      "\n"
      "{\"timestamp\": 1000, \"input_length\": 3, \"output_length\": 2}\r\n"
      "{\"timestamp\": 5000.5, \"input_length\": 512, \"output_length\": 1, \"hash_ids\": [0]}",
      "t.jsonl");
  REQUIRE(w.requests.size() == 3);
  CHECK(w.requests[0].arrival_s == 0);
  CHECK(w.requests[0].input == 3);
  CHECK(w.requests[1].arrival_s == doctest::Approx(2));
  CHECK(w.requests[1].hash_ids == std::vector<int32_t>{0, 5, 6});
  CHECK(w.requests[2].arrival_s == doctest::Approx(4.0005));
  CHECK(w.rate == doctest::Approx(2 / 4.0005));
  CHECK(w.longest() == 1107);
  CHECK(w.shares_prefixes());
}

TEST_CASE("the committed trace") {
  const char* source = std::getenv("RANKWRIGHT_SOURCE");
  REQUIRE(source != nullptr);
  const Workload w = load_workload(std::string(source) + "/tests/plan/chat_trace.jsonl", 1);
  CHECK(w.requests.size() == 24);
  CHECK(w.longest() == 4096 + 120);
}

TEST_CASE("bad lines name line, what was expected and what was found") {
  const auto parse = [](const std::string& line) {
    return error_of([&] {
      parse_trace("{\"timestamp\": 0, \"input_length\": 3, \"output_length\": 2}\n" + line + "\n", "t.jsonl");
    });
  };
  CHECK(has(parse("{\"timestamp\": 0, \"input_length\": 3}"), "t.jsonl:2: expected the key \"output_length\""));
  CHECK(has(parse("{\"timestamp\": 0, \"input_length\": 0, \"output_length\": 1}"), "found 0"));
  CHECK(has(parse("{\"timestamp\": 0, \"input_length\": 2.5, \"output_length\": 1}"), "found 2.5"));
  CHECK(has(parse("{\"timestamp\": 0, \"input_length\": \"9\", \"output_length\": 1}"), "found \"9\""));
  CHECK(has(parse("{\"timestamp\": -1, \"input_length\": 9, \"output_length\": 1}"), "timestamp"));
  CHECK(has(parse("{\"timestamp\": null, \"input_length\": 9, \"output_length\": 1}"), "timestamp"));
  CHECK(has(parse("{\"input_length\": 9, \"output_length\": 1}"), "t.jsonl:2"));
  CHECK(has(parse("{\"timestamp\": 0, \"input_length\": 512, \"output_length\": 1, \"hash_ids\": [1, 2]}"),
            "expected at most 1 for 512 input tokens"));
  CHECK(has(parse("{\"timestamp\": 0, \"input_length\": 512, \"output_length\": 1, \"hash_ids\": [-4]}"), "found -4"));
  CHECK(has(parse("{\"timestamp\": 0, \"input_length\": 512, \"output_length\": 1, \"hash_ids\": 3}"), "array"));
  CHECK(has(parse("[1]"), "expected an object"));
  CHECK(has(parse("{\"timestamp\""), "t.jsonl:2"));
  CHECK(has(error_of([] { parse_trace("\n\n", "t.jsonl"); }), "found nothing"));
  CHECK(has(error_of([] { load_workload("/no/such/trace.jsonl", 1); }), "no such file"));
}

TEST_CASE("a description: lengths, rate and burstiness come out as asked") {
  const Workload w = describe_workload("in=100..300,out=5,rate=8,requests=20000,prefix=64", 5);
  REQUIRE(w.requests.size() == 20000);
  CHECK(w.rate == 8);
  CHECK(w.mean_output() == 5);
  CHECK(std::abs(w.mean_input() - 200) < 2);
  for (const double burst : {0.0, 0.25, 1.0, 4.0}) {
    const Workload b = describe_workload("in=9,out=1,rate=8,requests=40000,burst=" + std::to_string(burst), 5);
    double sum = 0, squares = 0;
    const auto n = static_cast<double>(b.requests.size() - 1);
    for (size_t i = 1; i < b.requests.size(); ++i) {
      const double gap = b.requests[i].arrival_s - b.requests[i - 1].arrival_s;
      CHECK(gap >= 0);
      sum += gap;
      squares += gap * gap;
    }
    const double mean = sum / n, variation = (squares / n - mean * mean) / (mean * mean);
    CAPTURE(burst);
    CHECK(std::abs(mean * 8 - 1) < 0.03);                      // rate
    CHECK(std::abs(variation - burst) < 0.08 * burst + 1e-6);  // squared coefficient of variation
  }
}

TEST_CASE("the same seed gives the same workload, another another") {
  const auto at = [](uint64_t seed) {
    return describe_workload("in=1..99,out=1..9,rate=3,requests=100,burst=3", seed).requests[99].arrival_s;
  };
  CHECK(at(4) == at(4));
  CHECK(at(4) != at(5));
}

TEST_CASE("prompts agree exactly as far as the workload says") {
  const WorkloadRequest a{.arrival_s = 0, .input = 1000, .output = 1, .hash_ids = {3, 4}},
      b{.arrival_s = 0, .input = 1024, .output = 1, .hash_ids = {3, 9}};
  const auto x = prompt_tokens(a, 0), y = prompt_tokens(b, 1);
  REQUIRE(x.size() == 1000);
  for (size_t i = 0; i < 1000; ++i) CHECK((x[i] == y[i]) == (i < 512));
  const WorkloadRequest c{.arrival_s = 0, .input = 9, .output = 1, .prefix = 4};
  const auto p = prompt_tokens(c, 0), q = prompt_tokens(c, 1);
  for (size_t i = 0; i < 9; ++i) CHECK((p[i] == q[i]) == (i < 4));
}

TEST_CASE("bad descriptions name the key") {
  const auto describe = [](const std::string& text) { return error_of([&] { describe_workload(text, 1); }); };
  CHECK(has(describe("in=5,out=6"), "rate="));
  CHECK(has(describe("in=5,out=6,rat=2"), "did you mean \"rate=\""));
  CHECK(has(describe("in=5,out=6,rate=fast"), "found \"fast\""));
  CHECK(has(describe("in=5,out=6,rate=0"), "rate"));
  CHECK(has(describe("in=9..5,out=6,rate=1"), "lower length first"));
  CHECK(has(describe("in=0,out=6,rate=1"), "in: expected"));
  CHECK(has(describe("in=5,in=6,out=6,rate=1"), "in: expected once"));
  CHECK(has(describe("in=5.5,out=6,rate=1"), "whole number"));
  CHECK(has(describe("in=5,out=6,rate=1,"), "found \"\""));
  CHECK(has(describe("in=5,out=6,rate=1,requests=1000001"), "from 1 to 1000000"));
}
