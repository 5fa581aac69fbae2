// Where dckpt looks: set-aside directories, the local tier, one step of a run, the working directory; one process only.
#include <doctest/doctest.h>

#include <algorithm>

#include "libcore/ckpt/step_dirs.h"
#include "tests/ckpt/dckpt_tool.h"
#include "tests/ckpt/saves.h"

using namespace rw;
using namespace dckpt_tool;
namespace fs = std::filesystem;

namespace {

std::vector<std::string> states(const Json& listed) {
  std::vector<std::string> list;
  for (const Json& s : listed["steps"]) list.push_back(s["state"].get<std::string>());
  return list;
}
using States = std::vector<std::string>;

// A bit of a weight, so that nothing but its digest says so.
void damage(const fs::path& step) {
  const StoredPiece piece = Checkpoint(step).pieces("final_norm.weight").front();
  saves::flip(step / piece.file, piece.at + 1);
}

int64_t bytes_of(const fs::path& dir) {
  int64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(dir)) bytes += static_cast<int64_t>(entry.file_size());
  return bytes;
}

}  // namespace

TEST_CASE("what was set aside as damaged is listed, and never counted, loaded, judged again or removed") {
  const ScratchDir dir;
  const std::string run = (dir / "run").string();
  make_run(run, {3, 8, 11});
  const fs::path steps = dir / "run/checkpoints", aside = steps / "step-00000011.damaged";
  damage(steps / "step-00000011");
  // The later one of a name takes its place.
  fs::create_directory(aside);
  std::ofstream(aside / "old") << "x";
  set_aside_damaged(steps / "step-00000011");
  CHECK_FALSE(fs::exists(steps / "step-00000011"));
  CHECK(fs::exists(aside / "rank-00000.h5"));
  CHECK_FALSE(fs::exists(aside / "old"));
  set_aside_damaged(steps / "step-00000011");  // gone already
  const auto evidence = saves::tree(aside);

  const Json listed = dckpt("ls --json " + run).json();
  CHECK(states(listed) == States{"committed", "committed", "damaged"});
  CHECK(listed["steps"][2]["step"] == 11);
  CHECK(listed["steps"][2]["set_aside"] == true);
  CHECK(has(dckpt("ls " + run).out, "step-00000011.damaged: set aside"));
  CHECK(dckpt("show --json " + run).json()["step"] == 8);
  CHECK(states(dckpt("ls --json " + aside.string()).json()) == States{"damaged"});

  const Result whole = dckpt("verify " + run);
  CHECK(whole.code == 0);
  CHECK(has(whole.out, "step-00000011.damaged: set aside as damaged"));
  const Result judged = dckpt("verify " + aside.string());
  CHECK(judged.code == 3);
  CHECK(has(judged.out, "tensor final_norm.weight"));
  const Json both = dckpt("verify --json " + run + " " + aside.string()).json();
  CHECK(both["checkpoints"].size() == 3);
  CHECK(both["set_aside"].size() == 1);

  const Json pruned = dckpt("prune --json --keep-last 1 " + run).json();
  CHECK(pruned["kept"].size() == 1);
  CHECK(pruned["kept"][0]["step"] == 8);
  CHECK(pruned["damaged"][0]["step"] == 11);
  remove_leftovers(steps);
  CHECK(saves::tree(aside) == evidence);
  // A manifest of another step.
  fs::rename(steps / "step-00000008", steps / "step-00000009");
  for (const std::string& path : {run, (steps / "step-00000009").string() + "/"}) {
    CHECK(has(dckpt("verify " + path).out, "expected a manifest of step 9, found step 8"));
    CHECK(dckpt("ls --json " + path).json()["steps"][0]["state"] == "damaged");
  }
  // Nothing else is left to verify.
  fs::remove_all(steps / "step-00000009");
  CHECK(dckpt("verify " + run).code == 2);
}

TEST_CASE("dckpt prune --verify does not count flipped bits as a checkpoint that stays") {
  const ScratchDir dir;
  const std::string run = (dir / "run").string();
  make_run(run, {1, 2, 3});
  damage(dir / "run/checkpoints/step-00000003");
  const Json sizes = dckpt("prune --dry-run --json --keep-last 1 " + run).json();
  CHECK(sizes["kept"][0]["step"] == 3);
  const Result pruned = dckpt("prune --verify --json --keep-last 1 " + run);
  CHECK(pruned.code == 0);
  CHECK(pruned.json()["removed"].size() == 1);
  CHECK(pruned.json()["kept"][0]["step"] == 2);
  CHECK(has(pruned.json()["damaged"][0]["reason"].get<std::string>(), "tensor final_norm.weight"));
  CHECK(fs::exists(dir / "run/checkpoints/step-00000003"));
  const std::string help = dckpt("prune --help").out;
  CHECK(help.find("[0]") == help.find("[0]\n"));  // of keep-every
  CHECK_FALSE(has(help.substr(help.find("--keep-last"), help.find("--keep-every") - help.find("--keep-last")), "[0]"));
  CHECK(has(dckpt("prune --keep-last two " + run).err, "--keep-last"));
}

TEST_CASE("dckpt ls: the local tier of a run") {
  const ScratchDir dir;
  const std::string run = (dir / "run").string();
  make_run(run, {3});
  const auto copy = [&](const std::string& node) {
    const fs::path step = dir / ("fast/node-" + node) / "t-1/step-00000003";
    fs::create_directories(step.parent_path());
    fs::copy(dir / "run/checkpoints/step-00000003", step);
    return step;
  };
  const Json config = {{"local_checkpoint_dir", (dir / "fast/node-{node}").string()}};
  std::ofstream(dir / "run/run.json") << Json{{"run_id", "t-1"}, {"config", config}};
  CHECK(states(dckpt("ls --json " + run).json()) == States{"committed"});  // none is here

  copy("0");
  fs::remove(copy("12") / "rank-00001.h5");
  copy("x");                                          // no node's
  fs::create_directories(dir / "fast/node-3/other");  // another run's
  const Json listed = dckpt("ls --json " + run).json();
  CHECK(states(listed) == States{"committed", "local", "local"});
  CHECK(has(listed["steps"][1]["path"].get<std::string>(), "/fast/node-0/t-1/step-00000003"));
  CHECK(has(listed["steps"][2]["path"].get<std::string>(), "/fast/node-12/t-1/step-00000003"));
  CHECK(has(dckpt("ls " + run).out, (dir / "fast/node-12/t-1").string()));
  damage(dir / "fast/node-0/t-1/step-00000003");
  CHECK(states(dckpt("ls --verify --json " + run).json()) == States{"committed", "damaged", "local"});

  // A folder that is no node's number.
  std::ofstream(dir / "run/run.json") << Json{{"run_id", "t-1"},
                                              {"config", {{"local_checkpoint_dir", (dir / "fast/node-12").string()}}}};
  CHECK(states(dckpt("ls --json " + run).json()) == States{"committed", "local"});

  // The node's folder itself, which holds the run's alone.
  const std::string node = (dir / "fast/node-x").string();
  CHECK(states(dckpt("ls --json " + node).json()) == States{"committed"});
  CHECK(dckpt("show --json " + node).json()["step"] == 3);
  CHECK(dckpt("verify " + node).code == 0);
  CHECK(dckpt("convert " + node + " -o " + (dir / "hf").string()).code == 0);
  CHECK(dckpt("show --json " + (dir / "fast/node-12").string()).json()["step"] == 3);  // a part
  fs::create_directories(dir / "fast/node-x/t-2/step-00000001");
  CHECK(dckpt("show " + node).code == 2);
}

TEST_CASE("--step names a checkpoint of a run") {
  const ScratchDir dir;
  const std::string run = (dir / "run").string(), out = (dir / "out").string();
  make_run(run, {3, 8});
  CHECK(dckpt("show --json --step 3 " + run).json()["step"] == 3);
  CHECK(dckpt("show --json --step 8 " + run + "/checkpoints").json()["step"] == 8);
  CHECK(dckpt("convert --json --step 3 " + run + " -o " + out + "/hf").json()["step"] == 3);
  CHECK(dckpt("reshard --json --step 3 " + run + " -o " + out + "/re").json()["step"] == 3);
  CHECK(dckpt("cp --json --step 3 " + run + " " + out + "/cp").json()["step"] == 3);
  Json diff = dckpt("diff --json --step 3 " + run + " " + out + "/re").json();
  CHECK(diff["a"]["step"] == 3);
  CHECK(diff["b"]["step"] == 3);
  diff = dckpt("diff --json --step 3 " + run + " " + run + "/checkpoints/step-00000008").json();
  CHECK(diff["a"]["step"] == 3);
  CHECK(diff["b"]["step"] == 8);
  const Result none = dckpt("show --step 4 " + run);
  CHECK(none.code == 2);
  CHECK(has(none.err, "there are 3, 8"));
  const std::string step = run + "/checkpoints/step-00000008";
  for (const std::string& args :
       {"show --step 8 " + step, "cp --step 8 " + step + " " + out + "/x", "diff --step 8 " + step + " " + step,
        "convert --step 8 " + out + "/hf -o " + out, "show --step -1 " + run, "show --step x " + run}) {
    CAPTURE(args);
    CHECK(dckpt(args).code == 2);
    CHECK(has(dckpt(args).err, "--step"));
  }
}

TEST_CASE("sizes are of files, and alike everywhere; dckpt ls is of the working directory") {
  const ScratchDir dir;
  const std::string run = (dir / "run").string();
  make_run(run, {8});
  const int64_t bytes = bytes_of(dir / "run/checkpoints/step-00000008");
  const Json verified = dckpt("verify --json " + run).json()["checkpoints"][0];
  CHECK(verified["bytes"] == bytes);
  const Json shown = dckpt("show --summary --json " + run).json();
  CHECK(verified["tensor_bytes"] ==
        shown["bytes"]["weights"].get<int64_t>() + shown["bytes"]["optimizer"].get<int64_t>());
  CHECK(dckpt("cp --json " + run + " " + (dir / "cp").string()).json()["bytes"] == bytes);
  const Json reshard = dckpt("reshard --dp 3 --zero 2 --json " + run + " -o " + (dir / "re").string()).json();
  CHECK(reshard["bytes"] == bytes_of(dir / "re/checkpoints/step-00000008"));
  CHECK(reshard["tensor_bytes"] == verified["tensor_bytes"]);
  const Json made = dckpt("convert --optimizer --dtype bf16 --json " + run + " -o " + (dir / "hf").string()).json();
  CHECK(made["bytes"] == bytes_of(dir / "hf"));
  CHECK(dckpt("verify --json " + (dir / "hf").string()).json()["checkpoints"][0]["bytes"] ==
        fs::file_size(dir / "hf/model.safetensors") + fs::file_size(dir / "hf/optimizer.safetensors"));
  const Json exported = dckpt("show --summary --json " + (dir / "hf").string()).json();
  const int64_t params = shown["model"]["params"].get<int64_t>();
  CHECK(exported["bytes"]["weights"] == 2 * params);
  CHECK(exported["bytes"]["optimizer"] == 12 * params);  // two moments and the masters, f32

  const Result again = dckpt("cp " + run + " " + (dir / "cp").string());
  CHECK(again.code == 2);
  CHECK_FALSE(has(again.err, "copying"));

  const fs::path here = fs::current_path();
  fs::current_path(dir / "run");
  const Result ls = dckpt("ls --json");
  fs::current_path(here);
  CHECK(ls.json()["steps"][0]["bytes"] == bytes);
}

TEST_CASE("dckpt is one process: under mpirun rank 0 says so, but for reshard") {
  const ScratchDir dir;
  make_run(dir / "run", {8});
  const std::string build = std::getenv("RANKWRIGHT_BUILD"), tool = quoted(build + "/tools/dckpt");
  const auto in_job = [&](int rank, const std::string& args) {
    const std::string job = "OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=" + std::to_string(rank) + " " + tool + " " +
                            args + " >" + quoted((dir / "out").string()) + " 2>" + quoted((dir / "err").string());
    const int status = std::system(job.c_str());
    return Result{WEXITSTATUS(status), read_file(dir / "out"), read_file(dir / "err")};
  };
  const std::string run = quoted((dir / "run").string()), out = (dir / "x").string();
  for (const std::string& args : {"ls " + run, "show " + run, "verify " + run, "convert " + run + " -o " + out,
                                  "diff " + run + " " + run, "prune --keep-last 1 " + run, "cp " + run + " " + out}) {
    CAPTURE(args);
    const Result first = in_job(0, args), second = in_job(1, args);
    CHECK(first.code == 2);
    CHECK(has(first.err, "single process"));
    CHECK(second.code == 0);
    CHECK(second.out + second.err == "");
  }
  CHECK_FALSE(fs::exists(out));
}
