// dckpt prune and cp as processes.
#include <doctest/doctest.h>

#include "libcore/base/files.h"
#include "tests/ckpt/dckpt_tool.h"
#include "tests/ckpt/saves.h"

using namespace rw;
using namespace dckpt_tool;
namespace fs = std::filesystem;

namespace {

std::vector<int64_t> steps_of(const Json& list) {
  std::vector<int64_t> steps;
  for (const Json& item : list) steps.push_back(item["step"].get<int64_t>());
  return steps;
}
using Steps = std::vector<int64_t>;

}  // namespace

TEST_CASE("dckpt prune") {
  const ScratchDir dir;
  make_run(dir / "run", {1, 2, 3, 4, 5, 6});
  const std::string run = (dir / "run").string();
  fs::remove(dir / "run/checkpoints/step-00000005/manifest.json");
  fs::create_directory(dir / "run/checkpoints/step-00000007.tmp");

  const auto before = saves::tree(dir / "run/checkpoints");
  const Result plan = dckpt("prune --dry-run --keep-last 2 --keep-every 2 --json " + run);
  CHECK(plan.code == 0);
  CHECK(saves::tree(dir / "run/checkpoints") == before);
  CHECK(steps_of(plan.json()["removed"]) == Steps{1, 3});
  CHECK(steps_of(plan.json()["removed_unfinished"]) == Steps{7});
  CHECK(has(dckpt("prune --dry-run --keep-last 2 " + run).out, "would remove"));
  CHECK(saves::tree(dir / "run/checkpoints") == before);

  // A trainer at work: its unfinished save stays.
  {
    const FileLock trainer(dir / "run/.lock", "busy");
    const Result busy = dckpt("prune --keep-last 2 --keep-every 2 " + run);
    CHECK(busy.code == 0);
    CHECK(has(busy.out, "step-00000007.tmp: a trainer may be writing it"));
    CHECK(fs::exists(dir / "run/checkpoints/step-00000007.tmp"));
    CHECK_FALSE(fs::exists(dir / "run/checkpoints/step-00000003"));
  }
  const Result prune = dckpt("prune --keep-last 1 --json " + run + "/checkpoints");
  CHECK(prune.code == 0);
  const Json report = prune.json();
  CHECK(steps_of(report["removed"]) == Steps{2, 4});
  CHECK(steps_of(report["removed_unfinished"]) == Steps{7});
  CHECK(steps_of(report["kept"]) == Steps{6});
  CHECK(steps_of(report["damaged"]) == Steps{5});
  CHECK(report["bytes"].get<int64_t>() ==
        report["removed"][0]["bytes"].get<int64_t>() + report["removed"][1]["bytes"].get<int64_t>());
  CHECK_FALSE(fs::exists(dir / "run/checkpoints/step-00000007.tmp"));
  CHECK(fs::exists(dir / "run/checkpoints/step-00000005/rank-00000.h5"));
  const Result again = dckpt("prune --keep-last 1 " + run);
  CHECK(again.code == 0);
  CHECK(has(again.out, "1 checkpoint stays: step 6; 0 B freed"));

  // With --checkpoint-dir the steps lie elsewhere, with a lock of their own, and the run links to them.
  fs::rename(dir / "run/checkpoints", dir / "durable");
  fs::create_directory_symlink(dir / "durable", dir / "run/checkpoints");
  fs::create_directory(dir / "durable/step-00000007.tmp");
  {
    const FileLock trainer(dir / "durable/.lock", "busy");
    for (const std::string& path : {run, (dir / "durable").string()}) {
      CHECK(dckpt("prune --keep-last 1 " + path).code == 0);
      CHECK(fs::exists(dir / "durable/step-00000007.tmp"));
    }
  }
  CHECK(dckpt("prune --keep-last 1 " + run).code == 0);
  CHECK_FALSE(fs::exists(dir / "durable/step-00000007.tmp"));
  CHECK(fs::is_symlink(dir / "run/checkpoints"));

  CHECK(has(dckpt("prune " + run).err, "--keep-last"));
  CHECK(dckpt("prune " + run).code == 2);
  CHECK(dckpt("prune --keep-last 0 " + run).code == 2);
  CHECK(dckpt("prune --keep-last 1 " + run + "/checkpoints/step-00000006").code == 2);
  CHECK(dckpt("prune --keep-last 1 " + dir.path().string()).code == 2);
  CHECK(fs::exists(dir / "run/checkpoints/step-00000006"));
}

TEST_CASE("dckpt cp") {
  const ScratchDir dir;
  make_run(dir / "run");
  const std::string run = (dir / "run").string(), step3 = run + "/checkpoints/step-00000003";
  const fs::path backup = dir / "back up";

  const Result cp = dckpt("cp --json " + run + " " + quoted(backup.string()));
  CHECK(cp.code == 0);
  CHECK(cp.json()["step"] == 8);
  CHECK(cp.json()["output"] == (backup / "step-00000008").string());
  CHECK(saves::tree(backup / "step-00000008") == saves::tree(dir / "run/checkpoints/step-00000008"));
  CHECK(dckpt("cp " + step3 + "/ " + quoted(backup.string() + "/")).code == 0);
  CHECK(dckpt("verify " + quoted(backup.string())).code == 0);
  CHECK(dckpt("cp " + step3 + " " + quoted(backup.string())).code == 2);
  CHECK(has(dckpt("cp " + step3 + " " + quoted(backup.string())).err, "--force"));
  CHECK(dckpt("cp --force " + step3 + " " + quoted(backup.string())).code == 0);

  // Into a run: among its checkpoints, while nobody trains in it.
  fs::create_directories(dir / "other/checkpoints");
  std::ofstream(dir / "other/run.json") << "{}";
  {
    const FileLock trainer(dir / "other/.lock", "busy");
    const Result busy = dckpt("cp " + step3 + " " + (dir / "other").string());
    CHECK(busy.code == 2);
    CHECK(has(busy.err, "a trainer is at work"));
  }
  fs::create_directory(dir / "other/checkpoints/step-00000003.tmp");
  CHECK(dckpt("cp " + step3 + " " + (dir / "other").string()).code == 0);
  CHECK(fs::exists(dir / "other/checkpoints/step-00000003/manifest.json"));
  // Relative names, from inside.
  const fs::path here = fs::current_path();
  fs::current_path(dir / "run/checkpoints/step-00000008");
  const Result inside = dckpt("cp --json . ../../copies"), one = dckpt("ls --json ."), list = dckpt("ls --json ..");
  fs::current_path(here);
  CHECK(inside.code == 0);
  CHECK(fs::exists(dir / "run/copies/step-00000008/manifest.json"));
  CHECK(one.json()["steps"][0]["step"] == 8);
  CHECK(list.json()["steps"].size() == 2);

  const StoredPiece piece = Checkpoint(step3).pieces("embed.token.weight").back();
  saves::flip(fs::path(step3) / piece.file, piece.at + 5);
  const Result damaged = dckpt("cp " + step3 + " " + (dir / "new/place").string());
  CHECK(damaged.code == 3);
  CHECK(has(damaged.err, piece.file + ": tensor embed.token.weight"));
  CHECK_FALSE(fs::exists(dir / "new"));
  const auto before = saves::tree(backup);
  CHECK(dckpt("cp --force " + step3 + " " + quoted(backup.string())).code == 3);
  CHECK(saves::tree(backup) == before);

  CHECK(dckpt("cp " + run).code == 2);
  CHECK(dckpt("cp " + (dir / "nowhere").string() + " " + (dir / "x").string()).code == 2);
  CHECK(dckpt("cp " + run + " " + (dir / "run/run.json").string()).code == 2);
  CHECK(dckpt("cp " + run + " " + (dir / "x/step-00000009").string()).code == 2);
}
