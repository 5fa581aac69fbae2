// Costs by hand: prices of an hour, where a run's time went, what was served.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/bench/cost/cost.h"

using namespace rw;

namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

StepRecord step_of(int64_t step, double seconds, double data_s, double checkpoint_s) {
  StepRecord s;
  s.step = step, s.step_s = seconds;
  s.tokens = 1000.0 * static_cast<double>(step), s.samples = 10.0 * static_cast<double>(step);
  s.seconds.fill(0);
  s.seconds[static_cast<size_t>(TimeCategory::data)] = data_s;
  s.seconds[static_cast<size_t>(TimeCategory::checkpoint)] = checkpoint_s;
  return s;
}

EventRecord event_of(const std::string& kind, const std::string& time, int64_t step, const std::string& more = "") {
  return {kind, "2026-01-31T" + time + "Z", step, "{\"event\":\"" + kind + "\"" + more + "}"};
}

// Ten steps of 10 s, 1 s of each a wait for data, 2 s of stall after the fifth. The first attempt computes 8 steps and
// dies at 00:01:30 by its last resource record; the second one begins at 00:03:20 from step 5.
RunRecords two_attempts() {
  RunRecords run;
  run.dir = "run";
  run.identity = R"({"hosts":["a","a","b","b"],"config":{"steps":20}})";
  for (int64_t i = 1; i <= 10; ++i) run.steps.push_back(step_of(i, 10, 1, i == 6 ? 2 : 0));
  run.events = {event_of("start", "00:00:00", 0), event_of("checkpoint", "00:01:00", 5),
                event_of("resume", "00:03:20", 5), event_of("validation", "00:04:25", 10, ",\"seconds\":3"),
                event_of("end", "00:04:30", 10)};
  run.resources = {{"2026-01-31T00:01:30Z", "a", 90, 9, "{}"}};
  return run;
}

}  // namespace

TEST_CASE("UTC times: known days, and what is none") {
  CHECK(utc_seconds("1970-01-01T00:00:00Z") == 0);
  CHECK(utc_seconds("2000-03-01T00:00:00Z") == 951868800);   // date -u -d 2000-03-01 +%s
  CHECK(utc_seconds("2026-01-31T12:34:56Z") == 1769862896);  // date -u -d 2026-01-31T12:34:56 +%s
  for (const char* bad : {"", "2026-01-31", "2026-02-30T00:00:00Z", "2026-01-31T24:00:00Z", "2026-01-31T12:34:56+0",
                          "x026-01-31T12:34:56Z"})
    CHECK_MESSAGE(std::isnan(utc_seconds(bad)), bad);
}

TEST_CASE("the last save of an attempt, after its last metrics line, is in the stalls; times of no age are refused") {
  RunRecords run = two_attempts();
  // 2 s in the lines; the first attempt tells 1.5 s, the second 0.25 and then 0.75 s in all: 2.25.
  run.events[1].line = R"({"event":"checkpoint","stall_total_s":1.5})";
  run.events.insert(run.events.end() - 1, {event_of("checkpoint", "00:04:26", 8, ",\"stall_total_s\":0.25"),
                                           event_of("checkpoint", "00:04:27", 10, ",\"stall_total_s\":0.75")});
  CHECK(run_time(run).checkpoint_s == doctest::Approx(2.25));
  CHECK(run_time(two_attempts()).checkpoint_s == doctest::Approx(2));
  CostSpec spec;
  spec.price = 1;
  run.events.front().time = "0001-01-01T00:00:00Z";
  CHECK_THROWS_AS(training_cost(run, spec), Error);
}

TEST_CASE("an hour: rent, power, depreciation and repair") {
  CostSpec spec;
  spec.price = 2;
  spec.power_w = 500, spec.electricity = 0.2;                              // 0.1 an hour
  spec.device_price = 17520, spec.life_years = 4, spec.utilisation = 0.5;  // 17520 / 17520 = 1
  spec.repair_hours_per_device_year = 876;                                 // a tenth of the year
  const HourPrice h = hour_price(spec);
  CHECK(h.power == doctest::Approx(0.1));
  CHECK(h.depreciation == doctest::Approx(1.0));
  CHECK(h.repair == doctest::Approx(3.1 / 9));  // 3.1 / 0.9 - 3.1
  CHECK(h.total() == doctest::Approx(3.1 / 0.9));
}

TEST_CASE("half a pair, and nothing at all, are refused") {
  CHECK_THROWS_AS(check_cost(CostSpec{}), Error);
  CostSpec power;
  power.price = 1, power.power_w = 100;
  CHECK_THROWS_WITH_AS(check_cost(power), doctest::Contains("--electricity"), Error);
  CostSpec device;
  device.device_price = 100;
  CHECK_THROWS_WITH_AS(check_cost(device), doctest::Contains("--life-years"), Error);
}

TEST_CASE("where the time of a run of two attempts went") {
  const RunTime t = run_time(two_attempts());
  CHECK(t.attempts == 2);
  CHECK(t.wall_s == 270);       // 00:00:00 to 00:04:30
  CHECK(t.down_s == 110);       // 00:01:30 to 00:03:20
  CHECK(t.lost_steps == 3);     // the ninth step was under way: 8 computed, 5 kept
  CHECK(t.productive_s == 90);  // 10 x 9
  CHECK(t.data_s == 10);
  CHECK(t.checkpoint_s == 2);
  CHECK(t.validation_s == 3);
  CHECK(t.lost_s == 30);   // 3 x 10
  CHECK(t.other_s == 25);  // 160 - 100 - 2 - 3 - 30
  CHECK(t.effective() == doctest::Approx(1.0 / 3));
}

TEST_CASE("rewinds and skipped steps do not count") {
  RunRecords run;
  for (int64_t i = 1; i <= 4; ++i) run.steps.push_back(step_of(i, 5, 0, 0));
  run.steps[1].skipped = true;
  run.events = {event_of("start", "00:00:00", 0), event_of("rewind", "00:00:30", 1, ",\"from_step\":4"),
                event_of("end", "00:01:00", 4)};
  const RunTime t = run_time(run);
  CHECK(t.rewinds == 1);
  CHECK(t.lost_steps == 3);
  CHECK(t.lost_s == 15);
  CHECK(t.skipped_s == 5);
  CHECK(t.productive_s == 15);
  CHECK(t.other_s == 25);
  CHECK(t.wall_s == 60);
}

TEST_CASE("a run without events is its steps") {
  RunRecords run;
  for (int64_t i = 1; i <= 3; ++i) run.steps.push_back(step_of(i, i == 2 ? kNone : 4, 0, 0));
  const RunTime t = run_time(run);
  CHECK_FALSE(t.from_events);
  CHECK(t.wall_s == 8);
  CHECK(t.effective() == 1);
}

TEST_CASE("what a training run cost, and what it will") {
  CostSpec spec;
  spec.price = 3.6;
  const TrainingCost c = training_cost(two_attempts(), spec);
  CHECK(c.devices == 4);
  CHECK(c.billed_hours == doctest::Approx(4 * 270.0 / 3600));
  CHECK(c.total == doctest::Approx(1.08));                    // 0.3 x 3.6
  CHECK(c.per_million_tokens == doctest::Approx(108));        // 10,000 tokens
  CHECK(c.per_sample == doctest::Approx(0.0108));             // 100 samples
  CHECK(c.hours_to_finish == doctest::Approx(270.0 / 3600));  // ten more steps at the same pace
  CHECK(c.whole == doctest::Approx(2.16));
  spec.bill_gaps = false;
  spec.waiting_hours = 0.5;
  const TrainingCost d = training_cost(two_attempts(), spec);
  CHECK(d.billed_hours == doctest::Approx(4 * 160.0 / 3600 + 2));
  CHECK(d.to_finish == doctest::Approx(4 * 160.0 / 3600 * 3.6));  // waiting comes once
  CHECK_THROWS_AS(training_cost(RunRecords{}, spec), Error);
}

TEST_CASE("a run that goes on from another one's checkpoint is not charged its tokens") {
  RunRecords run = two_attempts();
  run.steps.erase(run.steps.begin(), run.steps.begin() + 5);
  CostSpec spec;
  spec.price = 1;
  const TrainingCost c = training_cost(run, spec);
  CHECK(c.tokens == 5000);
  CHECK(c.samples == 50);
}

TEST_CASE("a served load: by a record") {
  BenchRecord record;
  record.bench = "serve", record.name = "load";
  record.details =
      R"({"duration":1800,"completed":90,"failed":10,"total_input_tokens":3000000,"total_output_tokens":1000000,)"
      R"("attainment":0.9,"retry_rate":0.02,"reject_rate":0.1,"p99_queue_ms":12})";
  CostSpec spec;
  spec.price = 4, spec.devices = 2;
  const ServingCost c = serving_cost(served_load(record), spec);
  CHECK(c.total == doctest::Approx(4));  // 2 x half an hour x 4
  CHECK(c.per_million_output == doctest::Approx(4));
  CHECK(c.per_million_total == doctest::Approx(1));
  CHECK(c.load.requests == 100);
  CHECK(c.load.attainment == 0.9);
  const BenchRecord out = cost_record(c, spec, "load");
  REQUIRE(find_metric(out, "slo_attainment") != nullptr);
  CHECK(find_metric(out, "queued_share") == nullptr);  // not recorded: absent, not 0
  record.bench = "train";
  CHECK_THROWS_AS(served_load(record), Error);
  record.bench = "serve", record.details = R"({"completed":1})";
  CHECK_THROWS_WITH_AS(served_load(record), doctest::Contains("duration"), Error);
}

TEST_CASE("a served load: by the server's own files, torn lines counted") {
  const std::filesystem::path dir = std::filesystem::temp_directory_path() / fmt::format("cost_test.{}", ::getpid());
  std::filesystem::create_directories(dir);
  {
    std::ofstream spans(dir / "spans.jsonl"), steps(dir / "steps.jsonl");
    for (const double waited : {0.5, 3.0, 5.0})
      spans << fmt::format(
          "{{\"prompt_tokens\":10,\"completion_tokens\":4,\"finish_reason\":\"stop\",\"spans\":[{{\"name\":\"queue\","
          "\"start_ms\":1,\"end_ms\":{}}}]}}\n",
          1 + waited);
    spans << "{\"prompt_tok";
    steps << "{\"format\":1}\n{\"seconds\":1.5,\"drawn\":[]}\n{\"seconds\":2.5,\"drawn\":[]}\n";
  }
  const ServedLoad load = served_load(dir);
  std::filesystem::remove_all(dir);
  CHECK(load.duration_s == 4);
  CHECK(load.requests == 3);
  CHECK(load.input_tokens == 30);
  CHECK(load.output_tokens == 12);
  CHECK(load.queued_share == doctest::Approx(2.0 / 3));
  CHECK(load.queue_p50_ms == doctest::Approx(3));
  CHECK(std::isnan(load.attainment));
  CHECK_THROWS_AS(served_load(dir), Error);
}
