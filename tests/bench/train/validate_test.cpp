// dbench validate's verdicts, and the programs it runs.
#include "libcore/bench/train/validate.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/bench/record/baseline.h"
#include "libcore/bench/train/child_process.h"

using namespace rw;
namespace fs = std::filesystem;

namespace {

StageResult stage_of(const std::vector<double>& seconds, double predicted) {
  BenchRecord record = new_record("validate", "train: tiny", Json::object());
  BenchMetric m;
  m.name = "step_s";
  m.unit = "s";
  m.samples = seconds;
  if (predicted > 0) m.predicted = predicted;
  record.metrics = {m};
  record.repeats = static_cast<int64_t>(seconds.size());
  StageResult stage;
  stage.name = "train";
  stage.records = {record};
  return stage;
}

struct Folder {
  fs::path path = fs::temp_directory_path() / ("validate_" + std::to_string(::getpid()));
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
};

}  // namespace

TEST_CASE("a prediction warns, others on the machine warn, a baseline fails") {
  ValidateSpec spec;
  StageResult stage = stage_of({1.0, 1.1, 1.2}, 0.6);
  judge_stage(stage, spec);
  CHECK(stage.verdict == StageVerdict::pass);  // 1.1 / 0.6 is below 2
  REQUIRE(stage.notes.size() == 1);
  CHECK(stage.notes[0] == "step_s: 1.1 s, predicted 0.6");
  stage = stage_of({1.0, 1.1, 1.2}, 0.5);
  judge_stage(stage, spec);
  CHECK(stage.verdict == StageVerdict::warn);
  stage = stage_of({1.0}, 0);
  stage.records[0].metrics[0].better = Better::higher;  // 1 token/s where 3 were predicted
  stage.records[0].metrics[0].predicted = 3;
  judge_stage(stage, spec);
  CHECK(stage.verdict == StageVerdict::warn);
  for (const bool is_far : {false, true}) {  // milliseconds hold the server's own work
    stage = stage_of({is_far ? 3.0 : 1.9}, 0.1);
    stage.records[0].metrics[0].unit = "ms";
    judge_stage(stage, spec);
    CHECK(stage.verdict == (is_far ? StageVerdict::warn : StageVerdict::pass));
  }
  stage = stage_of({1.0}, 0);
  stage.records[0].quiet = false;
  judge_stage(stage, spec);
  CHECK(stage.verdict == StageVerdict::warn);

  const Folder folder;
  spec.baseline = (folder.path / "baselines").string();
  stage = stage_of({1.0}, 0);
  judge_stage(stage, spec);
  CHECK(stage.verdict == StageVerdict::warn);
  CHECK(stage.notes[0].find("no baseline") == 0);
  SaveBaseline save;
  save.dir = spec.baseline;
  save_baseline(stage_of({1.00, 1.01, 0.99, 1.0, 1.02, 0.98, 1.0, 1.01}, 0).records, save);
  stage = stage_of({1.01, 1.0, 0.99, 1.0, 1.01, 1.0, 0.98, 1.02}, 0);
  judge_stage(stage, spec);
  CHECK(stage.verdict == StageVerdict::pass);
  stage = stage_of({2.01, 2.0, 1.99, 2.0, 2.01, 2.0, 1.98, 2.02}, 0);
  judge_stage(stage, spec);
  CHECK(stage.verdict == StageVerdict::fail);
  CHECK(stage.notes[0].find("step_s: 2") == 0);
}

TEST_CASE("a program's exit, and one that does not end") {
  const Folder folder;
  ChildProcess three({"sh", "-c", "echo out; echo err >&2; exit 3"}, folder.path / "out", folder.path / "err");
  REQUIRE(three.wait(60));
  CHECK(three.code() == 3);
  CHECK(read_file(folder.path / "out") == "out\n");
  CHECK(read_file(folder.path / "err") == "err\n");
  ChildProcess sleeper({"sleep", "1000"}, folder.path / "out", folder.path / "err");
  CHECK(!sleeper.wait(0.1));
  CHECK(sleeper.code() == -1);
  sleeper.end();
  CHECK(!sleeper.running());
  CHECK(sleeper.code() == 128 + 15);
  CHECK_THROWS_AS(ChildProcess({"no-such-program-anywhere"}, folder.path / "out", folder.path / "err"), Error);
}

TEST_CASE("what is asked must make sense") {
  const auto run = [](const ValidateSpec& spec) {
    run_validate({.spec = spec, .programs = "/nowhere", .progress = [](const std::string&, const std::string&) {}});
  };
  ValidateSpec spec;
  spec.stage = {"tarin"};
  CHECK_THROWS_AS(run(spec), Error);
  spec.stage = {"serve"};
  CHECK_THROWS_AS(run(spec), Error);
  spec = {};
  spec.save = true;
  CHECK_THROWS_AS(run(spec), Error);
  spec = {};
  spec.launcher = "mpirun";
  CHECK_THROWS_AS(run(spec), Error);
  spec = {};
  spec.model = "no-such-model";
  CHECK_THROWS_AS(run(spec), Error);
  const Folder folder;
  spec = {};
  spec.baseline = (folder.path / "file").string();
  write_file_atomic(spec.baseline, "x");
  CHECK_THROWS_WITH_AS(run(spec), doctest::Contains("found a file"), Error);
  spec.save = true;
  CHECK_THROWS_AS(run(spec), Error);
}

TEST_CASE("what to do about a launcher") {
  CHECK(launch_advice("There are not enough slots available in the system").find("--oversubscribe") !=
        std::string::npos);
  CHECK(launch_advice("mpirun has detected an attempt to run as root.").find("OMPI_ALLOW_RUN_AS_ROOT=1") !=
        std::string::npos);
  CHECK(launch_advice("something else").empty());
}
