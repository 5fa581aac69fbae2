// Each planted fault in synthetic records is the first finding, and records without any give none above info.
#include <doctest/doctest.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "libcore/bench/doctor/around.h"
#include "libcore/bench/doctor/doctor.h"
#include "libcore/bench/doctor/rehearsal.h"
#include "libcore/bench/doctor/training_facts.h"
#include "libcore/bench/doctor/training_rules.h"

using namespace rw;

namespace {

void set_s(StepRecord& s, TimeCategory c, double seconds) { s.seconds[static_cast<size_t>(c)] = seconds; }

Json identity() {
  return {{"model_config", {{"vocab_size", 4096}}},
          {"data", Json::array({{{"path", "/nowhere/x.h5"}, {"tokens", 1e9}}})},
          {"layout", {{"tp", 1}, {"pp", 1}, {"vpp", 1}, {"dp", 2}, {"micro_batches", 8}, {"schedule", "1f1b"}}},
          {"precision", "bf16"},
          {"threads_per_rank", 1},
          {"config", {{"warmup_steps", 10}, {"val_fraction", 0.05}}},
          {"hosts", {"a", "a"}}};
}

// 127 steps of about 0.4 s: a loss that falls with noise, times that vary by some percent.
RunRecords healthy(uint64_t seed = 1) {
  RunRecords run;
  run.identity = identity().dump();
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  for (int64_t i = 1; i <= 127; ++i) {
    StepRecord s;
    s.step = i;
    s.loss = 3 + 5.3 * std::exp(-static_cast<double>(i) / 30) + 0.03 * normal(random);
    s.lr = 1e-3 * std::min(1.0, static_cast<double>(i) / 10);
    s.grad_norm = (1 + 3 * std::exp(-static_cast<double>(i) / 20)) * std::exp(0.2 * normal(random));
    set_s(s, TimeCategory::compute, 0.35 * std::exp(0.05 * normal(random)));
    set_s(s, TimeCategory::communication, 0.04 * std::exp(0.4 * normal(random)));
    set_s(s, TimeCategory::bubble, 0);
    set_s(s, TimeCategory::data, 1e-4);
    set_s(s, TimeCategory::checkpoint, i % 50 == 0 ? 0.02 : 0);
    s.exposed_s = s.second(TimeCategory::communication);
    s.step_s = s.second(TimeCategory::compute) + s.exposed_s + 1e-4;
    s.tokens = static_cast<double>(i) * 4096;
    s.samples = static_cast<double>(i) * 16;
    s.mfu_causal = 0.45;
    s.loss_scale = std::nan("");
    s.bytes["replica.all_reduce"] = 2e7;
    s.batch_fingerprint = fmt::format("{:016x}", random());
    run.steps.push_back(s);
  }
  for (int64_t i = 0; i < 40; ++i) {
    const Json line = {{"interval_s", 1.0},
                       {"cpu", {{"cpus", 4}, {"busy", 0.55}, {"io_wait", 0.0}, {"steal", 0.0}}},
                       {"run_queue", 3},
                       {"memory_bytes", {{"total", 16e9}, {"available", 9e9 + 1e7 * normal(random)}, {"swap_used", 0}}},
                       {"tcp_retransmits", 0},
                       {"disks", {{"vda", {{"busy", 0.02}}}}},
                       {"resident_bytes", {{"11", 1e9 + 1e6 * normal(random)}, {"12", 1e9}}}};
    run.resources.push_back(
        {fmt::format("2026-01-01T00:00:{:02}Z", i), "a", static_cast<double>(i), i * 3, line.dump()});
  }
  return run;
}
void add_event(RunRecords& run, Json line) {
  run.events.push_back({line["event"], "2026-01-01T00:00:00Z", line.value("step", int64_t{-1}), line.dump()});
}
template <typename Change>
void change_resources(RunRecords& run, const Change& change) {
  for (size_t i = 0; i < run.resources.size(); ++i) {
    Json line = Json::parse(run.resources[i].line);
    change(line, i);
    run.resources[i].line = line.dump();
  }
}
template <typename Change>
void change_identity(RunRecords& run, const Change& change) {
  Json json = Json::parse(run.identity);
  change(json);
  run.identity = json.dump();
}
void wait_longer(StepRecord& s, TimeCategory c, double seconds) {
  set_s(s, c, s.second(c) + seconds);
  s.step_s += seconds;
  if (c == TimeCategory::communication) s.exposed_s += seconds;
}
std::vector<Finding> findings(const RunRecords& run) { return doctor_run(run, {}).findings; }
std::string first(const RunRecords& run) {
  const std::vector<Finding> found = findings(run);
  return found.empty() || found.front().severity == Severity::info ? "" : found.front().id;
}

}  // namespace

TEST_CASE("a healthy run has no finding above info") {
  for (uint64_t seed = 1; seed <= 50; ++seed) CHECK(first(healthy(seed)) == "");
}

TEST_CASE("no records, few records, and records of missing numbers make rules silent") {
  CHECK(first(RunRecords{}) == "");
  RunRecords run = healthy();
  run.steps.resize(1);
  CHECK(first(run) == "");
  run = healthy();
  run.identity.clear();
  run.resources.clear();
  CHECK(first(run) == "");
  run = healthy();
  for (StepRecord& s : run.steps) {
    const int64_t step = s.step;
    const double step_s = s.step_s;
    s = StepRecord{};
    s.step = step, s.step_s = step_s;
    for (double* v : {&s.lr, &s.tokens, &s.samples, &s.loss_scale, &s.exposed_s, &s.mfu_causal}) *v = std::nan("");
    s.seconds.fill(std::nan(""));
    s.loss = 3, s.grad_norm = std::nan("");
  }
  change_identity(run, [](Json& j) { j.erase("model_config"); });
  CHECK(first(run) == "");
  change_resources(run, [](Json& j, size_t) { j = {{"interval_s", nullptr}, {"cpu", "none"}}; });
  CHECK(first(run) == "");
}

TEST_CASE("data flow") {
  RunRecords run = healthy();
  SUBCASE("waits for data") {
    for (StepRecord& s : run.steps) wait_longer(s, TimeCategory::data, 0.05);
    CHECK(first(run) == "data.wait");
  }
  SUBCASE("stalls now and then") {
    for (size_t i = 50; i < 127; i += 19) wait_longer(run.steps[i], TimeCategory::data, 1.7);
    CHECK(first(run) == "data.stall");
    CHECK(training_facts(run).find("data.stalls")->value == 5);
  }
  SUBCASE("short waits in a rhythm") {
    for (size_t i = 0; i < 127; i += 4) wait_longer(run.steps[i], TimeCategory::data, 0.18);
    CHECK(first(run) == "data.uneven");
    CHECK(training_facts(run).find("data.stalls") == nullptr);
  }
  SUBCASE("the same batches again, every 23 steps") {
    for (size_t i = 23; i < run.steps.size(); ++i) run.steps[i].batch_fingerprint = run.steps[i - 23].batch_fingerprint;
    CHECK(first(run) == "data.repeat");
    CHECK(training_facts(run).find("data.period")->value == 23);
    CHECK(training_facts(run).find("data.repeats")->value == 127 - 23);
  }
  SUBCASE("one batch that is unlike the others") {
    run.steps[80].loss += 2;
    CHECK(first(run) == "data.odd_batch");
  }
}

TEST_CASE("communication") {
  RunRecords run = healthy();
  SUBCASE("takes a large share on one host") {
    for (StepRecord& s : run.steps) wait_longer(s, TimeCategory::communication, 0.3);
    CHECK(first(run) == "comm.share");
  }
  SUBCASE("over a slow link between hosts: 20 MB at 0.34 s") {
    change_identity(run, [](Json& j) { j["hosts"] = {"a", "b"}; });
    for (StepRecord& s : run.steps) wait_longer(s, TimeCategory::communication, 0.3);
    CHECK(first(run) == "comm.slow_link");
    CHECK(training_facts(run).find("comm.crossing")->text == "data-parallel");
  }
  SUBCASE("short steps are full of latency") {
    for (StepRecord& s : run.steps) {
      s.step_s = 0.02, s.exposed_s = 0.01;
      s.seconds = {0.01, 0.01, 0, 0, 0};
    }
    CHECK(first(run) == "");
  }
  SUBCASE("segments are sent again") {
    change_resources(run, [](Json& j, size_t i) { j["tcp_retransmits"] = i % 2 == 0 ? 40 : 25; });
    for (StepRecord& s : run.steps) wait_longer(s, TimeCategory::communication, 0.1);
    CHECK(first(run) == "comm.loss");
  }
  SUBCASE("a rank pauses now and then") {
    for (size_t i = 45; i < 127; i += 13) wait_longer(run.steps[i], TimeCategory::communication, 2.1);
    CHECK(first(run) == "comm.late");
  }
  SUBCASE("tensor parallel over two hosts") {
    change_identity(run, [](Json& j) {
      j["hosts"] = {"a", "b"};
      j["layout"]["tp"] = 2, j["layout"]["dp"] = 1;
    });
    CHECK(first(run) == "comm.tp_crosses");
  }
  SUBCASE("a failed run, and one that went on after it") {
    add_event(run, {{"event", "failed"}, {"step", 127}, {"error", "rank 1 did not answer for 15 s"}});
    CHECK(first(run) == "comm.failed");
    add_event(run, {{"event", "resume"}, {"step", 120}});
    CHECK(first(run) == "");
  }
}

TEST_CASE("resources") {
  RunRecords run = healthy();
  SUBCASE("others take the CPUs") {
    change_resources(run, [](Json& j, size_t) { j["run_queue"] = 6, j["cpu"]["busy"] = 0.99; });
    CHECK(first(run) == "cpu.hog");
    // Not where CPUs are idle, and not the cause of a learning rate.
    RunRecords other = run;
    change_resources(other, [](Json& j, size_t) { j["cpu"]["busy"] = 0.6; });
    CHECK(first(other) == "");
    // Nor is one thread more now and then another's.
    other = run;
    change_resources(other, [](Json& j, size_t i) { j["run_queue"] = i % 2 == 0 ? 4 : 3; });
    CHECK(first(other) == "");
    for (StepRecord& s : run.steps) s.loss = 8.31, s.lr = 1e-8;
    CHECK(first(run) == "params.lr_small");
  }
  SUBCASE("a slow rank") {
    add_event(run,
              {{"event", "straggler"}, {"step", 40}, {"rank", 1}, {"host", "b"}, {"compute_s", 0.9}, {"peers_s", 0.3}});
    CHECK(first(run) == "rank.slow");
    CHECK(findings(run).front().explanation.find("rank 1 on host b computes 3 times") != std::string::npos);
  }
  SUBCASE("a rank that is slow again and again, and ranks that are slow in turn") {
    for (StepRecord& s : run.steps) {
      s.slowest_rank = 1, s.slowest_s = 0.4, s.slowest_peers_s = 0.35;
      if (s.step % 3 == 0) continue;
      s.slowest_s = 0.9;
      wait_longer(s, TimeCategory::communication, 0.55);
    }
    CHECK(first(run) == "rank.slow");
    CHECK(findings(run).front().explanation.find("rank 1 on host a (in 57 of 85 steps) computes 2.57 times") !=
          std::string::npos);
    for (StepRecord& s : run.steps) s.slowest_rank = static_cast<double>(s.step / 3 % 2);
    CHECK(first(run) == "comm.share");
  }
  SUBCASE("more work after a resume is no slower host; a drift since then is") {
    for (size_t i = 80; i < 127; ++i) wait_longer(run.steps[i], TimeCategory::compute, 0.7);
    CHECK(first(run) == "cpu.slower");
    add_event(run, {{"event", "resume"}, {"step", 80}});
    CHECK(first(run) == "");
    for (size_t i = 105; i < 127; ++i) wait_longer(run.steps[i], TimeCategory::compute, 0.9);
    CHECK(first(run) == "cpu.slower");
  }
  SUBCASE("the clock falls") {
    change_resources(run, [](Json& j, size_t i) { j["clock_mhz"] = {{"mean", i < 20 ? 3000 : 1800}}; });
    for (size_t i = 60; i < 127; ++i) wait_longer(run.steps[i], TimeCategory::compute, 0.25);
    CHECK(first(run) == "cpu.clock");
  }
  SUBCASE("memory near its end") {
    change_resources(run, [](Json& j, size_t) { j["memory_bytes"]["available"] = 1e9; });
    CHECK(first(run) == "memory.near_limit");
  }
  SUBCASE("a leak") {
    change_resources(run, [](Json& j, size_t i) { j["resident_bytes"]["11"] = 1e9 + 3e7 * static_cast<double>(i); });
    CHECK(first(run) == "memory.leak");
  }
  SUBCASE("a buffer that fills up once is none") {
    change_resources(run, [](Json& j, size_t i) { j["resident_bytes"]["11"] = i < 22 ? 1e9 : 1.4e9; });
    CHECK(first(run) == "");
  }
  SUBCASE("swap") {
    change_resources(run, [](Json& j, size_t i) { j["memory_bytes"]["swap_used"] = 1e7 * static_cast<double>(i); });
    CHECK(first(run) == "memory.swap");
  }
  SUBCASE("saving stalls") {
    for (size_t i = 9; i < 127; i += 10) set_s(run.steps[i], TimeCategory::checkpoint, 1.1);
    CHECK(first(run) == "checkpoint.stall");
  }
  SUBCASE("many saves, each short") {
    for (StepRecord& s : run.steps) set_s(s, TimeCategory::checkpoint, 0.03);
    CHECK(first(run) == "");
    for (StepRecord& s : run.steps) set_s(s, TimeCategory::checkpoint, 0.06);
    CHECK(first(run) == "checkpoint.stall");
  }
  SUBCASE("no room for checkpoints") {
    add_event(
        run,
        {{"event", "checkpoint_failed"}, {"step", 50}, {"error", "rank 0: writing failed: No space left on device"}});
    CHECK(first(run) == "checkpoint.disk_full");
  }
  SUBCASE("a slow disk in the background") {
    for (int64_t i = 20; i < 127; i += 20)
      add_event(
          run,
          {{"event", "checkpoint"}, {"step", i}, {"background_s", 7.0}, {"blocking_s", 0.01}, {"bytes_per_s", 1e7}});
    CHECK(first(run) == "checkpoint.slow_disk");
  }
}

TEST_CASE("parameters") {
  RunRecords run = healthy();
  SUBCASE("a jump that takes its time to come back") {
    for (size_t i = 80; i < 95; ++i) run.steps[i].loss += 2 * std::exp(-static_cast<double>(i - 80) / 6);
    CHECK(first(run) == "params.spike");
  }
  SUBCASE("the same after a resume is the resume's") {
    for (size_t i = 80; i < 95; ++i) run.steps[i].loss += 2 * std::exp(-static_cast<double>(i - 80) / 6);
    add_event(run, {{"event", "resume"}, {"step", 80}});
    CHECK(first(run) == "params.spike_at_resume");
  }
  SUBCASE("the same while the ranks waited is asked there first") {
    for (size_t i = 80; i < 95; ++i) run.steps[i].loss += 2 * std::exp(-static_cast<double>(i - 80) / 6);
    wait_longer(run.steps[79], TimeCategory::communication, 3);
    CHECK(first(run) == "comm.spike_at_wait");
  }
  SUBCASE("it goes up and stays") {
    for (size_t i = 80; i < 127; ++i) run.steps[i].loss += std::min(2.0, 0.1 * static_cast<double>(i - 79));
    CHECK(first(run) == "params.diverged");
  }
  SUBCASE("not finite from the start, and later") {
    for (StepRecord& s : run.steps) s.loss = s.grad_norm = std::nan(""), s.skipped = true;
    CHECK(first(run) == "params.nonfinite_start");
    run = healthy();
    for (size_t i = 100; i < 127; ++i)
      run.steps[i].loss = run.steps[i].grad_norm = std::nan(""), run.steps[i].skipped = true;
    CHECK(first(run) == "params.nonfinite");
    run = healthy();
    run.steps[100].loss = run.steps[100].grad_norm = std::nan(""), run.steps[100].skipped = true;
    CHECK(first(run) == "params.nonfinite_once");
  }
  SUBCASE("a first loss that is worse than guessing; with f16, the scale that fell for it") {
    for (StepRecord& s : run.steps) s.loss *= 60;
    CHECK(first(run) == "params.start_loss");
    for (size_t i = 0; i < 127; ++i) {
      run.steps[i].skipped = i < 7;
      run.steps[i].loss_scale = std::ldexp(65536, -std::min(7, static_cast<int>(i)));
    }
    CHECK(first(run) == "params.scale_overflow");
    run.steps[3].skipped = run.steps[6].skipped = false, run.steps[8].skipped = run.steps[9].skipped = true;
    CHECK(first(run) == "params.scale_start");
  }
  SUBCASE("the scale of f16 collapses") {
    for (size_t i = 0; i < 127; ++i) run.steps[i].loss_scale = 65536;
    CHECK(first(run) == "");
    for (size_t i = 90; i < 127; ++i) {
      run.steps[i].loss_scale = std::ldexp(65536, 90 - static_cast<int>(i)), run.steps[i].skipped = true;
      run.steps[i].grad_norm = std::nan("");
      add_event(run, {{"event", "skip"}, {"reason", "f16 overflow"}, {"step", run.steps[i].step}});
    }
    CHECK(first(run) == "params.scale_collapse");
  }
  SUBCASE("some halvings at the start are a search") {
    for (size_t i = 0; i < 127; ++i) {
      run.steps[i].loss_scale = i < 3 ? std::ldexp(65536, -static_cast<int>(i)) : 8192;
      run.steps[i].skipped = i < 3;
    }
    CHECK(first(run) == "");
  }
  SUBCASE("a flat loss") {
    for (StepRecord& s : run.steps) s.loss = 8.31 + 0.001 * static_cast<double>(s.step % 7);
    CHECK(first(run) == "params.flat");
  }
  SUBCASE("too few micro-batches") {
    change_identity(run,
                    [](Json& j) { j["layout"]["pp"] = 2, j["layout"]["dp"] = 1, j["layout"]["micro_batches"] = 2; });
    CHECK(first(run) == "params.micro_batches");
    // (p - 1) / (m + p - 1) of Narayanan et al. 2021.
    CHECK(training_facts(run).find("bubble.of_layout")->value == doctest::Approx(1.0 / 3));
  }
  SUBCASE("a learning rate that jumps") {
    for (size_t i = 80; i < 127; ++i) run.steps[i].lr = 3e-3;
    CHECK(first(run) == "params.lr_jump");
    CHECK(lr_jumps(view_run(run)) == std::vector<int64_t>{81});
  }
  SUBCASE("the schedule that run.json tells is no jump, whatever its length") {
    // Cosine to zero over 12 steps, warm-up of 2: the formula of Loshchilov & Hutter 2017, written out here.
    run.steps.resize(12);
    for (size_t i = 0; i < 12; ++i) {
      const double step = static_cast<double>(i + 1);
      run.steps[i].lr = step <= 2 ? 1e-3 * step / 2 : 0.5e-3 * (1 + std::cos(std::acos(-1.0) * (step - 2) / 10));
    }
    change_identity(run, [](Json& j) {
      j["config"] = {{"lr", 1e-3}, {"steps", 12}, {"warmup_steps", 2}, {"lr_schedule", "cosine"}, {"min_lr", 0}};
    });
    CHECK(lr_jumps(view_run(run)).empty());
    run.steps[6].lr *= 4;  // and what leaves it is
    CHECK(lr_jumps(view_run(run)).front() == 7);
  }
  SUBCASE("a loss that rises far and falls back, slowly") {
    for (size_t i = 3; i < 127; ++i)
      run.steps[i].loss += 30 * std::exp(-std::pow(static_cast<double>(i) - 30, 2) / 300);
    CHECK(first(run) == "params.excursion");
  }
  SUBCASE("norms that the guard warned of, and a loss that did not follow") {
    add_event(run, {{"event", "spike"}, {"step", 70}, {"verdict", "norm_spike"}, {"value", 57.2}, {"median", 0.8}});
    CHECK(first(run) == "");
    const std::vector<std::string> notes = doctor_run(run, {}).notes;
    CHECK(std::any_of(notes.begin(), notes.end(), [](const std::string& n) { return n.find("57.2") != n.npos; }));
  }
  SUBCASE("tiny batches jump by themselves") {
    run.steps[80].loss += 2;
    for (StepRecord& s : run.steps) s.tokens = static_cast<double>(s.step) * 24;
    CHECK(first(run) == "");
  }
  SUBCASE("gradients that grow") {
    for (size_t i = 0; i < 127; ++i) run.steps[i].grad_norm *= std::exp(0.06 * static_cast<double>(i));
    CHECK(first(run) == "params.norm_trend");
  }
  SUBCASE("slower than promised") {
    change_identity(run, [](Json& j) { j["predicted"] = {{"step-time-s", 0.2}, {"compute-s", 0.17}}; });
    CHECK(first(run) == "params.predicted");
    CHECK(training_facts(run).find("step.over_predicted")->text.find("compute: 0.17 s predicted") == 0);
  }
}

TEST_CASE("tokens that loop, and tokens without order") {
  std::mt19937 random(3);
  // A chain in which each token allows four next ones: ln 4 of entropy where the tokens alone have ln 61.
  std::vector<int32_t> tokens(50021);
  int32_t at = 1;
  for (int32_t& t : tokens) t = at = static_cast<int32_t>((static_cast<uint32_t>(at) * 17 + random() % 4) % 61);
  TokenLook look = look_at_tokens(tokens);
  CHECK(look.repeated_share < 0.01);
  CHECK(look.order_gain == doctest::Approx(look.entropy - std::log(4)).epsilon(0.02));
  std::vector<int32_t> loop;
  while (loop.size() < 50021) loop.insert(loop.end(), tokens.begin(), tokens.begin() + 1013);
  CHECK(look_at_tokens(loop).repeated_share > 0.9);
  std::vector<int32_t> short_loop(50021);
  for (size_t i = 0; i < short_loop.size(); ++i) short_loop[i] = static_cast<int32_t>(i % 7);
  CHECK(look_at_tokens(short_loop).repeated_share > 0.99);
  std::shuffle(tokens.begin(), tokens.end(), random);
  look = look_at_tokens(tokens);
  CHECK(std::fabs(look.order_gain) < 0.02 * look.entropy);
  CHECK(look_at_tokens(std::span(tokens).first(0)).repeated_share == 0);
  // A small loop: 2101 tokens, 21 of them over and over.
  std::vector<int32_t> small;
  for (int32_t i = 0; i < 2101; ++i) small.push_back(i % 21);
  CHECK(look_at_tokens(small).repeated_share > 0.9);
}

TEST_CASE("the robust slope is the line's, whatever a quarter of the values do") {
  std::vector<double> values;
  for (int i = 0; i < 101; ++i) values.push_back(i % 4 == 1 ? 1e6 : 2.5 * i + 7);
  CHECK(robust_slope(values) == doctest::Approx(2.5).epsilon(0.2));
  CHECK(std::isnan(robust_slope(std::vector<double>{1.0})));
}

TEST_CASE("a rehearsal: what differs, and what was not seen there") {
  RunRecords base = healthy(5), run = healthy(6);
  CHECK(compare_with_rehearsal(run, base).metrics.empty());
  base.log = "step 10: loss 5.1\nranks on 4 hosts\n",
  run.log = "step 70: loss 3.2\nranks on 900 hosts\nbtl/tcp: peer 17 reset\n";
  for (StepRecord& s : run.steps) wait_longer(s, TimeCategory::communication, 0.3);
  add_event(base, {{"event", "skip"}, {"step", 3}, {"reason", "f16 overflow"}});
  add_event(run, {{"event", "skip"}, {"step", 9}, {"reason", "f16 overflow"}});
  add_event(run, {{"event", "straggler"}, {"step", 40}, {"rank", 1}});
  add_event(run, {{"event", "checkpoint"}, {"step", 50}});
  change_identity(run, [](Json& j) { j["config"]["warmup_steps"] = 100; });
  const Rehearsal r = compare_with_rehearsal(run, base);
  REQUIRE(r.metrics.size() == 2);  // less of computing, more of communication
  CHECK(r.metrics[0].name == "communication share of a step");
  REQUIRE(r.log.size() == 1);
  CHECK(r.log[0].line == "btl/tcp: peer 17 reset");
  REQUIRE(r.events.size() == 1);
  CHECK(r.events[0].kind == "straggler");
  REQUIRE(r.config.size() == 1);
  CHECK(r.config[0].key == "config.warmup_steps");
  CHECK(r.config[0].before == "10");
  CHECK(r.config[0].now == "100");
  CHECK(without_numbers("rank 3 (host node-17): 2.5e-3 s at /tmp/x.h5") ==
        without_numbers("rank 12 (host node-4): 1 s at /home/y.h5"));
}

TEST_CASE("every rule has words for its facts, and effects name rules that exist") {
  std::set<std::string> ids;
  for (const Rule& r : training_rules()) CHECK(ids.insert(r.id).second);
  for (const Rule& r : training_rules()) {
    for (const char* of : r.effect_of) CHECK_MESSAGE(ids.count(of) == 1, r.id << " is an effect of " << of);
    CHECK_FALSE(r.when.empty());
    CHECK(std::string(r.explanation).size() > 10);
    CHECK(std::string(r.fix).size() > 10);
  }
  CHECK(rules_markdown(training_rules()).find("| `data.wait` | data flow | warning | data.share > 0.05") !=
        std::string::npos);
}
