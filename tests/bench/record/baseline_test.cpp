#include "libcore/bench/record/baseline.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "libcore/base/error.h"
#include "libcore/base/files.h"

using namespace rw;
namespace fs = std::filesystem;

namespace {

struct Folder {
  Folder() { fs::remove_all(path); }
  ~Folder() { fs::remove_all(path); }
  fs::path path = fs::temp_directory_path() / "rankwright_baseline_test";
};

BenchRecord record(const std::string& name, double sample, const std::string& fingerprint = "00aa") {
  BenchRecord r;
  r.bench = "train";
  r.name = name;
  r.time = "2026-01-31T12:34:56Z";
  r.tool_version = "0.1.0";
  r.machine = R"({"fingerprint":")" + fingerprint + R"(","cpu_model":"A","cpus":7})";
  BenchMetric m;
  m.name = "step_s";
  m.samples = std::vector<double>(60, sample);
  r.metrics.push_back(m);
  return r;
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

TEST_CASE("a baseline is kept by machine, bench and case, and read back") {
  const Folder folder;
  const auto files = save_baseline({record("tiny-llama tp 2 (bf16)", 0.5)}, {.dir = folder.path, .as = {}});
  REQUIRE(files.size() == 1);
  CHECK(files[0] == folder.path / "00aa" / "train" / "tiny-llama-tp-2-bf16.json");
  const std::string text = read_file(files[0]);
  HOLDS(text, "\n  \"bench\": \"train\",\n");
  CHECK(std::count(text.begin(), text.end(), '\n') < 40);  // 60 samples stand on one line
  const auto kept = read_baselines(folder.path);
  REQUIRE(kept.size() == 1);
  CHECK(kept[0].fingerprint == "00aa");
  CHECK(kept[0].runs[0].name == "tiny-llama tp 2 (bf16)");
  CHECK(kept[0].runs[0].metrics[0].samples == std::vector<double>(60, 0.5));
  HOLDS(baselines_text(kept), "train \"tiny-llama tp 2 (bf16)\"");
  CHECK(baselines_json(kept)[0]["runs"] == 1);
}

TEST_CASE("what is there is neither lost nor doubled without a word") {
  const Folder folder;
  save_baseline({record("a", 1)}, {.dir = folder.path, .as = {}});
  const std::string message = message_of([&] {
    save_baseline({record("b", 9), record("a", 2)}, {.dir = folder.path, .as = {}});
  });
  HOLDS(message, "--replace");
  HOLDS(message, "a.json");
  CHECK(read_baselines(folder.path).size() == 1);  // nothing of it was written
  save_baseline({record("a", 2), record("a", 3)}, {.dir = folder.path, .as = {}, .append = true});
  CHECK(read_baselines(folder.path)[0].runs.size() == 3);
  CHECK(read_baselines(folder.path)[0].runs[2].metrics[0].samples[0] == 3);
  save_baseline({record("a", 4)}, {.dir = folder.path, .as = {}, .replace = true});
  REQUIRE(read_baselines(folder.path)[0].runs.size() == 1);
  CHECK(read_baselines(folder.path)[0].runs[0].metrics[0].samples[0] == 4);
}

TEST_CASE("what two save at once is kept of both") {
  const Folder folder;
  save_baseline({record("a", 0)}, {.dir = folder.path, .as = {}});
  std::vector<std::thread> savers;
  for (int i = 1; i <= 8; ++i)
    savers.emplace_back([&, i] { save_baseline({record("a", i)}, {.dir = folder.path, .as = {}, .append = true}); });
  for (std::thread& saver : savers) saver.join();
  CHECK(read_baselines(folder.path)[0].runs.size() == 9);
}

TEST_CASE("runs of a crowded machine, and runs that mean something else, are no baseline") {
  const Folder folder;
  BenchRecord noisy = record("a", 1);
  noisy.quiet = false;
  HOLDS(message_of([&] { save_baseline({noisy}, {.dir = folder.path, .as = {}, .noisy = false}); }), "--noisy");
  save_baseline({noisy}, {.dir = folder.path, .as = {}, .noisy = true});
  BenchRecord other = record("a", 1000);
  other.metrics[0].unit = "ms";
  HOLDS(message_of([&] { save_baseline({other}, {.dir = folder.path, .as = {}, .append = true}); }),
        "expected one unit");
  CHECK(read_baselines(folder.path)[0].runs.size() == 1);
}

TEST_CASE("names that only differ in what a file's name cannot hold") {
  const Folder folder;
  save_baseline({record("tp 2", 1), record("tp/2", 2)}, {.dir = folder.path, .as = {}});
  save_baseline({record("../../tp:2", 3)}, {.dir = folder.path, .as = {}});
  save_baseline({record("", 5)}, {.dir = folder.path, .as = {}});
  const auto kept = read_baselines(folder.path);
  CHECK(kept.size() == 4);
  for (const Baseline& b : kept) CHECK(b.file.parent_path() == folder.path / "00aa" / "train");
  const auto found = matching_baselines(kept, {record("tp/2", 7)}, false);
  REQUIRE(found.size() == 1);
  CHECK(found[0].metrics[0].samples[0] == 2);
}

TEST_CASE("another name for the case") {
  const Folder folder;
  save_baseline({record("a", 1), record("a", 2)}, {.dir = folder.path, .as = "nightly"});
  const auto kept = read_baselines(folder.path);
  CHECK(kept[0].runs.size() == 2);
  CHECK(kept[0].runs[1].name == "nightly");
  HOLDS(message_of([&] { save_baseline({record("a", 1), record("b", 2)}, {.dir = folder.path, .as = "x"}); }), "--as");
}

TEST_CASE("the machine's own baseline, or another's when that is allowed") {
  const Folder folder;
  save_baseline(
      {record("a", 1), record("a", 2, "00bb"), record("b", 3, "00bb"), record("c", 4, "00bb"), record("c", 5, "00cc")},
      {.dir = folder.path, .as = {}});
  const auto kept = read_baselines(folder.path);
  CHECK(kept.size() == 5);
  CHECK(matching_baselines(kept, {record("a", 9)}, false)[0].metrics[0].samples[0] == 1);
  CHECK(matching_baselines(kept, {record("a", 9), record("a", 9), record("b", 9)}, false).size() == 1);
  HOLDS(message_of([&] { matching_baselines(kept, {record("b", 9)}, false); }), "only of 00bb (A, 7 CPUs)");
  CHECK(matching_baselines(kept, {record("b", 9)}, true)[0].metrics[0].samples[0] == 3);
  HOLDS(message_of([&] { matching_baselines(kept, {record("c", 9)}, true); }), "00cc");
  HOLDS(message_of([&] { matching_baselines(kept, {record("d", 9)}, false); }), "none of this case");
}

TEST_CASE("directories and records that are no baselines") {
  const Folder folder;
  HOLDS(message_of([&] { read_baselines(folder.path); }), "expected a directory of baselines, found none");
  fs::create_directories(folder.path);
  CHECK(read_baselines(folder.path).empty());
  std::ofstream(folder.path / "x.json") << R"({"other": 1})";
  HOLDS(message_of([&] { read_baselines(folder.path); }), "x.json");
  BenchRecord r = record("a", 1);
  r.machine = "{}";
  HOLDS(message_of([&] { save_baseline({r}, {.dir = folder.path / "y", .as = {}}); }), "names its machine");
  r = record("a", 1, "../up");
  HOLDS(message_of([&] { save_baseline({r}, {.dir = folder.path / "y", .as = {}}); }), "names its machine");
}
