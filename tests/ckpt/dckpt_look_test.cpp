// dckpt ls, show and diff as processes.
#include <doctest/doctest.h>

#include <cmath>

#include "tests/ckpt/dckpt_tool.h"
#include "tests/ckpt/saves.h"

using namespace rw;
using namespace dckpt_tool;
namespace fs = std::filesystem;

namespace {

size_t lines(const std::string& text) { return static_cast<size_t>(std::count(text.begin(), text.end(), '\n')); }

std::vector<std::string> states(const Json& listed) {
  std::vector<std::string> list;
  for (const Json& s : listed["steps"]) list.push_back(s["state"].get<std::string>());
  return list;
}

}  // namespace

TEST_CASE("dckpt ls: what is committed, partial, damaged") {
  const ScratchDir dir;
  const fs::path run = dir / "runs/a 'run' with\nodd name";
  const std::string name = quoted(run.string());
  make_run(run, {3, 8, 11});
  fs::create_directory(run / "checkpoints/step-00000012.tmp");
  std::ofstream(run / "checkpoints/step-00000012.tmp/rank-00000.h5") << "12345";
  fs::resize_file(run / "checkpoints/step-00000011/rank-00001.h5", 5000);
  saves::flip(run / "checkpoints/step-00000003/rank-00001.h5", 200'000);

  Result ls = dckpt("ls " + name);
  CHECK(ls.code == 0);
  CHECK(lines(ls.out) == 1 + 4 + 1);  // heading, steps, the damage
  CHECK(has(ls.out, "tp 1 x pp 1 x dp 2, zero 1"));
  CHECK(has(ls.out, "4.1250"));  // the loss of step 8
  CHECK(has(ls.out, "rank-00001.h5: expected "));
  CHECK(has(ls.out, "found 5000"));
  CHECK_FALSE(has(ls.out, "with\nodd"));

  Json listed = dckpt("ls --json " + name).json();
  CHECK(listed["kind"] == "run");
  CHECK(states(listed) == std::vector<std::string>{"committed", "committed", "damaged", "partial"});
  CHECK(listed["steps"][1]["step"] == 8);
  CHECK(listed["steps"][1]["loss"] == 4.125);
  CHECK(listed["steps"][1]["run_id"] == "t-1");
  CHECK(listed["steps"][1]["age_s"].get<double>() >= 0);
  CHECK(listed["steps"][1]["age_s"].get<double>() < 3600);
  CHECK(listed["steps"][3]["bytes"] == 5);
  CHECK(listed["steps"][2]["loss"].is_null() == false);
  int64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(run / "checkpoints/step-00000008"))
    bytes += static_cast<int64_t>(entry.file_size());
  CHECK(listed["steps"][1]["bytes"] == bytes);
  // Every byte, where asked for.
  listed = dckpt("ls --verify --json " + name).json();
  CHECK(states(listed) == std::vector<std::string>{"damaged", "committed", "damaged", "partial"});
  CHECK(has(listed["steps"][0]["reason"].get<std::string>(), "rank-00001.h5"));

  // The same directory by other names, and from inside.
  const std::string folder = quoted((run / "checkpoints").string() + "/");
  CHECK(states(dckpt("ls --json " + folder).json()).size() == 4);
  CHECK(dckpt("ls --json " + folder).json()["kind"] == "checkpoints");
  fs::create_directory_symlink(run / "checkpoints/step-00000008", dir / "best");
  CHECK(states(dckpt("ls --json " + (dir / "best").string()).json()) == std::vector<std::string>{"committed"});
  CHECK(states(dckpt("ls --json " + quoted((run / "checkpoints/step-00000011").string())).json()) ==
        std::vector<std::string>{"damaged"});

  // A directory of runs: the newest of each.
  make_run(dir / "runs/b", {5});
  fs::create_directories(dir / "runs/c/checkpoints");
  fs::create_directory(dir / "runs/no run");
  ls = dckpt("ls " + (dir / "runs").string());
  CHECK(ls.code == 0);
  CHECK(lines(ls.out) == 4);
  CHECK(has(ls.out, "1 damaged, 1 partial"));
  listed = dckpt("ls --json " + (dir / "runs").string()).json();
  CHECK(listed["kind"] == "runs");
  REQUIRE(listed["runs"].size() == 3);
  CHECK(listed["runs"][0]["newest"]["step"] == 8);
  CHECK(listed["runs"][0]["committed"] == 2);
  CHECK(listed["runs"][1]["newest"]["step"] == 5);
  CHECK(listed["runs"][2]["newest"].is_null());
  CHECK(has(dckpt("ls " + (dir / "runs/c").string()).out, "no checkpoint yet"));

  const Result unfinished = dckpt("ls " + quoted((run / "checkpoints/step-00000012.tmp").string()));
  CHECK(unfinished.code == 2);
  CHECK(has(unfinished.err, "did not finish"));
  CHECK(dckpt("ls " + (dir / "nowhere").string()).code == 2);
  CHECK(has(dckpt("ls " + (dir / "runs/no run").string()).err, "unexpected argument"));
  CHECK(dckpt("ls " + quoted((dir / "runs/no run").string())).code == 2);
  // Output that nobody reads ends the tool without a message of its own.
  const Result closed = dckpt("ls " + name + " | head -c 0");
  CHECK(closed.err.find("internal error") == std::string::npos);
}

TEST_CASE("dckpt ls and verify: a node's own directory holds its part") {
  const ScratchDir dir;
  make_run(dir / "run", {3});
  fs::create_directories(dir / "local/t-1");
  const fs::path step = dir / "local/t-1/step-00000003";
  fs::copy(dir / "run/checkpoints/step-00000003", step, fs::copy_options::recursive);
  CHECK(states(dckpt("ls --json " + (dir / "local/t-1").string()).json()) == std::vector<std::string>{"committed"});
  fs::remove(step / "rank-00001.h5");
  CHECK(states(dckpt("ls --json " + (dir / "local/t-1").string()).json()) == std::vector<std::string>{"part"});
  CHECK(dckpt("ls --json " + (dir / "local").string()).json()["steps"][0]["step"] == 3);  // its only run
  const Result verified = dckpt("verify " + (dir / "local/t-1").string());
  CHECK(verified.code == 0);
  CHECK(has(verified.out, "1 files are on other nodes"));
  saves::flip(step / "rank-00000.h5", 9);
  CHECK(dckpt("verify " + step.string()).code == 3);
  fs::remove(step / "rank-00000.h5");
  CHECK(states(dckpt("ls --json " + (dir / "local/t-1").string()).json()) == std::vector<std::string>{"damaged"});
  // Anywhere else a missing file is damage.
  fs::remove(dir / "run/checkpoints/step-00000003/rank-00001.h5");
  CHECK(states(dckpt("ls --json " + (dir / "run").string()).json()) == std::vector<std::string>{"damaged"});
}

TEST_CASE("dckpt show") {
  const ScratchDir dir;
  const std::string run = (dir / "run").string();
  make_run(run);
  fs::create_directory(dir / "run/checkpoints/step-00000009.tmp");

  const Result show = dckpt("show " + run + " --json");
  REQUIRE(show.code == 0);
  const Json shown = show.json();
  CHECK(shown["kind"] == "run");
  CHECK(shown["steps"] == Json{3, 8});
  CHECK(shown["step"] == 8);
  CHECK(shown["files"] == 2);
  CHECK(shown["bytes"]["optimizer"] == 2 * shown["bytes"]["weights"].get<int64_t>());
  CHECK(shown["bytes"]["weights"] == 4 * shown["model"]["params"].get<int64_t>());
  CHECK(shown["run"]["run_id"] == "t-1");
  CHECK(shown["ignored"].size() == 1);
  CHECK(show.out.size() < 60'000);  // without the tokenizer's text
  const size_t n_tensors = shown["tensors"].size();
  CHECK(shown["tensors"][0]["pieces"].size() == 2);
  CHECK(shown["tensors"][0].contains("stats") == false);

  const Result text = dckpt("show " + run);
  CHECK(text.code == 0);
  CHECK(has(text.out, "blocks.0.attn.q.weight"));
  CHECK(has(text.out, "tp 1 x pp 1 x dp 2, zero 1"));
  CHECK_FALSE(has(text.out, "rank-00001.h5 at "));
  const Result summary = dckpt("show --summary " + run);
  CHECK(lines(summary.out) + n_tensors + 2 == lines(text.out));
  CHECK(dckpt("show --summary --json " + run).json().contains("tensors") == false);

  const Result one = dckpt("show " + run + " --tensor blocks.0.attn.q.weight --stats");
  CHECK(has(one.out, "rank-00000.h5 at "));
  CHECK(has(one.out, "rank-00001.h5 at "));
  const Json some =
      dckpt("show --json --stats --tensor 'blocks.*.attn.q.weight' --tensor final_norm.weight " + run).json();
  REQUIRE(some["tensors"].size() == shown["model"]["layers"].get<size_t>() + 1);
  for (const Json& t : some["tensors"]) {
    // Element i is i % 101 - 50.
    int64_t n = 1, zeros = 0;
    for (const Json& extent : t["shape"]) n *= extent.get<int64_t>();
    double sum = 0, squares = 0, low = 100, high = -100;
    for (int64_t i = 0; i < n; ++i) {
      const double x = static_cast<double>(i % 101 - 50);
      sum += x, squares += x * x, zeros += x == 0;
      low = std::min(low, x), high = std::max(high, x);
    }
    const double mean = sum / static_cast<double>(n);
    const Json& s = t["stats"];
    CHECK(s["elements"] == n);
    CHECK(s["zero"] == zeros);
    CHECK(s["nan"] == 0);
    CHECK(s["inf"] == 0);
    CHECK(s["min"] == low);
    CHECK(s["max"] == high);
    CHECK(s["mean"].get<double>() == doctest::Approx(mean).epsilon(1e-12));
    CHECK(s["std"].get<double>() ==
          doctest::Approx(std::sqrt(squares / static_cast<double>(n) - mean * mean)).epsilon(1e-9));
  }
  const Result missing = dckpt("show --tensor blocks.0.atn.q.weight " + run);
  CHECK(missing.code == 2);
  CHECK(has(missing.err, "did you mean blocks.0.attn.q.weight?"));
  CHECK(dckpt("show --tensor 'x*' " + run).code == 2);
  CHECK(dckpt("show --summary --stats " + run).code == 2);
  CHECK(dckpt("show " + run + "/checkpoints/").code == 0);
  CHECK(dckpt("show " + run + "/checkpoints/step-00000009.tmp").code == 2);
  fs::remove(dir / "run/checkpoints/step-00000003/manifest.json");
  CHECK(has(dckpt("show " + run + "/checkpoints/step-00000003").err, "expected manifest.json, found none"));
}

TEST_CASE("names that a terminal would obey are shown, not obeyed") {
  const ScratchDir dir;
  const std::string name = "e\x1b[31mvil\r\xc2\x9b caf\xc3\xa9";
  const fs::path a = saves::tensors(dir / "a", 1, {saves::values<float>(name, DType::f32, {1}, {1})},
                                    {{{"run_id", "\x1b]0;title\x07"}, {"layout", "\x1b[2J"}}, {{"step", 1}}});
  const fs::path b = saves::tensors(dir / "b", 1, {saves::values<float>(name, DType::f32, {1}, {2})});
  std::string text;
  for (const std::string& args : {"show " + a.string(), "show --stats --tensor 'e*' " + a.string(), "ls " + a.string(),
                                  "diff " + a.string() + " " + b.string()})
    text += dckpt(args).out;
  CHECK(has(text, "e?[31mvil?? caf\xc3\xa9"));
  CHECK(text.find('\x1b') == std::string::npos);
  CHECK(text.find('\r') == std::string::npos);
  CHECK(text.find("\xc2\x9b") == std::string::npos);
  CHECK(dckpt("show --json " + a.string()).json()["tensors"][0]["name"] == name);
}

TEST_CASE("dckpt diff") {
  const ScratchDir dir;
  make_run(dir / "run");
  const std::string run = (dir / "run").string(), step3 = run + "/checkpoints/step-00000003";
  const Result same = dckpt("diff " + run + " " + step3);
  CHECK(same.code == 0);
  CHECK(has(same.out, "8 -> 3"));
  CHECK(has(same.out, "0 different"));
  const Json same_json = dckpt("diff --json " + run + " " + step3).json();
  CHECK(same_json["equal"] == true);
  CHECK(same_json["a"]["step"] == 8);
  CHECK(same_json["state"][0]["key"] == "step");
  CHECK(same_json["state"][0]["a"] == 8);

  // What convert writes are the same numbers, or, in bf16, these whole numbers below 64, exactly.
  REQUIRE(dckpt("convert " + run + " -o " + (dir / "hf").string()).code == 0);
  REQUIRE(dckpt("convert " + run + " -o " + (dir / "bf16").string() + " --dtype bf16").code == 0);
  const Result exported = dckpt("diff --json " + run + " " + (dir / "hf").string());
  CHECK(exported.code == 0);
  CHECK(exported.json()["state"].empty());
  CHECK(exported.json()["hyper_parameters"].empty());
  CHECK(exported.json()["tensors_left_out"] == 2 * exported.json()["tensors_equal"].get<int64_t>());
  const Result narrow = dckpt("diff --json " + (dir / "hf").string() + " " + (dir / "bf16").string());
  CHECK(narrow.code == 3);
  const Json narrowed = narrow.json();
  for (const Json& t : narrowed["tensors"]) CHECK(t["difference"] == "dtype");
  CHECK(dckpt("diff --tolerance 1e-9 " + (dir / "hf").string() + " " + (dir / "bf16").string()).code == 0);

  saves::made_up(dir / "other/checkpoints", 1, 2, 1, 1);
  const Result other = dckpt("diff " + run + " " + (dir / "other").string());
  CHECK(other.code == 3);
  CHECK(has(other.out, "only in A"));
  CHECK(has(other.out, "more; --json lists all"));
  CHECK(dckpt("diff " + run).code == 2);
  CHECK(dckpt("diff " + run + " " + (dir / "nowhere").string()).code == 2);
  CHECK(dckpt("diff --tolerance -1 " + run + " " + run).code == 2);
}
