#include "libcore/bench/record/run_records.h"

#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "libcore/base/error.h"

using namespace rw;
namespace fs = std::filesystem;

namespace {

struct Folder {
  Folder() {
    fs::remove_all(path);
    fs::create_directories(path);
  }
  ~Folder() { fs::remove_all(path); }
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((path / name).parent_path());
    std::ofstream(path / name) << text;
  }
  fs::path path = fs::temp_directory_path() / "rankwright_run_records_test";
};

std::string message_of(const fs::path& dir) {
  try {
    read_run_records(dir);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

constexpr const char* kStep =
    R"({"step":2,"loss":7.5,"lr":0.001,"grad_norm":4.0,"tokens":8192,"samples":32,"step_s":0.5,"tokens_per_s":8192.0,"model_flops":1e9,"mfu":{"full":0.06,"causal":0.05,"hardware":0.07},"seconds":{"compute":0.3,"communication":0.1,"bubble":0.05,"data":0.02,"checkpoint":0.03},"communication":{"exposed_s":0.15,"total_s":0.4,"calls":{"dp.all_reduce":8},"bytes":{"dp.all_reduce":4096}},"memory_bytes":{"weights":100,"planned":300},"batch_fingerprint":"aa","skipped":true,"loss_scale":1024.0})";

}  // namespace

TEST_CASE("run records: a whole line") {
  const Folder folder;
  folder.write("metrics.jsonl", std::string(kStep) + "\n");
  const RunRecords run = read_run_records(folder.path);
  REQUIRE(run.steps.size() == 1);
  const StepRecord& s = run.steps[0];
  CHECK(s.step == 2);
  CHECK(s.loss == 7.5);
  CHECK(s.lr == 0.001);
  CHECK(s.step_s == 0.5);
  CHECK(s.mfu_full == 0.06);
  CHECK(s.mfu_causal == 0.05);
  CHECK(s.mfu_hardware == 0.07);
  CHECK(s.second(TimeCategory::bubble) == 0.05);
  CHECK(s.second(TimeCategory::checkpoint) == 0.03);
  CHECK(s.exposed_s == 0.15);
  CHECK(s.communication_s == 0.4);
  CHECK(s.calls.at("dp.all_reduce") == 8);
  CHECK(s.bytes.at("dp.all_reduce") == 4096);
  CHECK(s.memory_bytes.at("planned") == 300);
  CHECK(s.loss_scale == 1024);
  CHECK(s.batch_fingerprint == "aa");
  CHECK(s.skipped);
  CHECK(run.identity.empty());
}

TEST_CASE("run records: what is missing is unknown, what is torn is passed over and told") {
  const Folder folder;
  folder.write(
      "metrics.jsonl",
      "{\"step\":1,\"step_s\":0.25,\"loss\":null}\nnonsense\n[1]\n{\"step\":3}\n{\"step\":\"4\",\"step_s\":1}\n"
      "{\"step\":5,\"step_s\":-1}\n{\"step\":6,\"step_s\":0.5,\"mfu\":7,\"seconds\":[],\"memory_bytes\":\"\"}\n"
      "{\"step\":7,\"ste");
  const RunRecords run = read_run_records(folder.path);
  REQUIRE(run.steps.size() == 2);
  CHECK(std::isnan(run.steps[0].loss));
  CHECK(std::isnan(run.steps[0].mfu_causal));
  CHECK(std::isnan(run.steps[1].second(TimeCategory::compute)));
  CHECK(run.steps[1].memory_bytes.empty());
  CHECK(run.torn_lines == 3);
  REQUIRE(run.notes.size() == 2);
  CHECK(run.notes[0].find("3 lines are no whole JSON object") != std::string::npos);
  CHECK(run.notes[1].find("3 lines without a \"step\"") != std::string::npos);
}

TEST_CASE("run records: a step that was computed twice counts once") {
  const Folder folder;
  folder.write(
      "metrics.jsonl",
      "{\"step\":1,\"step_s\":1}\n{\"step\":2,\"step_s\":1}\n{\"step\":3,\"step_s\":1}\n{\"step\":2,\"step_s\":"
      "2}\n{\"step\":3,\"step_s\":2}\n{\"step\":4,\"step_s\":2}\n");
  const RunRecords run = read_run_records(folder.path);
  REQUIRE(run.steps.size() == 4);
  CHECK(run.steps[0].step_s == 1);
  CHECK(run.steps[1].step_s == 2);
  CHECK(run.steps[2].step_s == 2);
  CHECK(run.steps[3].step == 4);
  const auto settled = settled_steps(run);
  REQUIRE(settled.size() == 3);
  CHECK(settled[0]->step == 2);
}

TEST_CASE("run records: events, resources of all hosts, dumps, logs") {
  const Folder folder;
  folder.write("run.json", R"({"run_id":"r1","tool_version":"0.0.1"})");
  folder.write("events.jsonl", "{\"event\":\"start\",\"time\":\"t\",\"run_id\":\"r1\",\"step\":0,\"ranks\":2}\n");
  folder.write("resources.jsonl", "{\"time\":\"2026-01-01T00:00:02Z\",\"host\":\"a\",\"clock_s\":5,\"step\":1}\n");
  folder.write("resources-b.jsonl", "{\"time\":\"2026-01-01T00:00:01Z\",\"host\":\"b\",\"clock_s\":900,\"step\":1}\n");
  folder.write("watchdog/rank-1.jsonl", "{}\n");
  folder.write("watchdog/rank-0.jsonl", "{}\n");
  folder.write("job.log", "dtrain: error: something\n");
  const RunRecords run = read_run_records(folder.path);
  REQUIRE(run.events.size() == 1);
  CHECK(run.events[0].event == "start");
  CHECK(run.events[0].line.find("\"ranks\"") != std::string::npos);
  REQUIRE(run.resources.size() == 2);
  CHECK(run.resources[0].host == "b");
  REQUIRE(run.watchdog.size() == 2);
  CHECK(run.watchdog[0].filename() == "rank-0.jsonl");
  CHECK(run.log.find("something") != std::string::npos);
}

TEST_CASE("run records: folders that are no run, and files of two") {
  const Folder folder;
  CHECK(message_of(folder.path / "nothing").find("expected a run directory") != std::string::npos);
  CHECK(message_of(folder.path).find("neither run.json, metrics.jsonl nor events.jsonl") != std::string::npos);
  folder.write("run.json", R"({"run_id":"r1","tool_version":"0.0.1"})");
  CHECK(message_of(folder.path).empty());
  folder.write("events.jsonl", "{\"event\":\"start\",\"run_id\":\"r2\"}\n");
  CHECK(message_of(folder.path).find("found one of run r2") != std::string::npos);
  folder.write("events.jsonl", "");
  folder.write("run.json", R"({"run_id":"r1","tool_version":"99.1.0"})");
  CHECK(message_of(folder.path).find("written by version 99.1.0") != std::string::npos);
  fs::create_symlink("metrics.jsonl", folder.path / "metrics.jsonl");
  folder.write("run.json", R"({"run_id":"r1","tool_version":"0.0.1"})");
  CHECK(message_of(folder.path).find("expected a regular file of JSON lines") != std::string::npos);
  fs::remove(folder.path / "metrics.jsonl");
  folder.write("run.json", "[]");
  CHECK(message_of(folder.path).find("expected an object") != std::string::npos);
}
