#include "libcore/ckpt/retention.h"

#include <doctest/doctest.h>
#include <random>
#include <set>

#include "tests/ckpt/saves.h"
#include "tests/ckpt/scratch_dir.h"

using namespace rw;
namespace fs = std::filesystem;

namespace {

using Steps = std::vector<int64_t>;

Steps committed(const fs::path& dir) {
  Steps steps;
  for (const CheckpointEntry& e : list_checkpoints(dir)) steps.push_back(e.step);
  return steps;
}

template <typename T>
Steps steps_of(const std::vector<T>& list) {
  Steps steps;
  for (const T& item : list) steps.push_back(item.step);
  return steps;
}

void save_steps(const fs::path& dir, const Steps& steps) {
  for (const int64_t step : steps)
    saves::tensors(dir, step, {saves::values<float>("w", DType::f32, {3}, {1, 2, static_cast<float>(step)})});
}

constexpr auto kPlan = PruneOptions::Action::plan;
constexpr auto kRemoveLeftovers = PruneOptions::Leftovers::remove;

}  // namespace

TEST_CASE("retention: the newest N and the multiples of M stay, nothing else") {
  std::mt19937 random(5);
  for (int i = 0; i < 2000; ++i) {
    std::set<int64_t> unique;
    const size_t n = random() % 9;
    while (unique.size() < n) unique.insert(static_cast<int64_t>(random() % 40));
    const Steps steps(unique.begin(), unique.end());
    const Retention retention{.keep_last = static_cast<int64_t>(random() % 6),
                              .keep_every = static_cast<int64_t>(random() % 8)};
    // The same by its words: a step goes when at least keep_last steps are newer and it is no multiple.
    Steps expected;
    for (const int64_t step : steps) {
      const auto newer = std::count_if(steps.begin(), steps.end(), [&](int64_t s) { return s > step; });
      const bool is_multiple = retention.keep_every > 0 && step % retention.keep_every == 0;
      if (retention.keep_last > 0 && newer >= retention.keep_last && !is_multiple) expected.push_back(step);
    }
    const Steps gone = steps_to_remove(steps, retention);
    REQUIRE(gone == expected);
    if (!steps.empty()) REQUIRE(std::count(gone.begin(), gone.end(), steps.back()) == 0);
  }
}

TEST_CASE("pruning: damaged checkpoints are not counted and stay") {
  const ScratchDir dir;
  save_steps(dir.path(), {10, 20, 30, 40, 50, 60});
  fs::remove(dir / "step-00000060/manifest.json");
  fs::resize_file(dir / "step-00000040/rank-00000.h5", fs::file_size(dir / "step-00000040/rank-00000.h5") - 1);
  const int64_t each = static_cast<int64_t>(fs::file_size(dir / "step-00000010/rank-00000.h5") +
                                            fs::file_size(dir / "step-00000010/manifest.json"));

  const auto before = saves::tree(dir.path());
  PruneReport plan = prune_steps(dir.path(), {.retention = {.keep_last = 2, .keep_every = 0}, .action = kPlan});
  CHECK(steps_of(plan.removed) == Steps{10, 20});
  CHECK(saves::tree(dir.path()) == before);

  const PruneReport report = prune_steps(dir.path(), {.retention = {.keep_last = 2, .keep_every = 0}});
  CHECK(steps_of(report.removed) == Steps{10, 20});
  CHECK(report.bytes == 2 * each);
  CHECK(plan.bytes == report.bytes);
  CHECK(steps_of(report.kept) == Steps{30, 50});
  CHECK(steps_of(report.damaged) == Steps{40, 60});
  CHECK(saves::has(report.damaged[1].reason, "manifest.json"));
  CHECK(committed(dir.path()) == Steps{30, 50});
  CHECK(fs::exists(dir / "step-00000040/rank-00000.h5"));
  CHECK(fs::exists(dir / "step-00000060/rank-00000.h5"));
  CHECK(leftovers(dir.path()).empty());

  // The trainer's form of it. The only intact one stays, whatever is newer.
  prune_checkpoints(dir.path(), 0, 0);
  CHECK(committed(dir.path()) == Steps{30, 50});
  prune_checkpoints(dir.path(), 1, 30);
  CHECK(committed(dir.path()) == Steps{30, 50});
  prune_checkpoints(dir.path(), 1, 0);
  CHECK(committed(dir.path()) == Steps{50});
  prune_checkpoints(dir.path(), 1, 0);
  CHECK(committed(dir.path()) == Steps{50});
  prune_checkpoints(dir / "nothing", 1, 0);
}

TEST_CASE("pruning: leftovers go only where nobody else writes") {
  const ScratchDir dir;
  save_steps(dir.path(), {1, 2, 3, 4});
  for (const char* name : {"step-00000002.tmp", "step-00000005.tmp"}) {
    fs::create_directory(dir / name);
    std::ofstream(dir / name / "rank-00000.h5") << "12345";
  }
  fs::create_directory(dir / "step-00000004.replaced");  // its successor arrived
  fs::create_directory(dir / "notes");
  fs::rename(dir / "step-00000003", dir / "step-00000003.replaced");  // its successor did not

  // Another process may be writing: its unfinished saves stay, and with one of them the committed step of that name.
  PruneReport report = prune_steps(dir.path(), {.retention = {.keep_last = 1, .keep_every = 0}});
  CHECK(steps_of(report.removed) == Steps{1, 3});
  CHECK(steps_of(report.kept) == Steps{2, 4});
  CHECK(steps_of(report.partial) == Steps{2, 5});
  CHECK_FALSE(fs::exists(dir / "step-00000003.replaced"));
  CHECK_FALSE(fs::exists(dir / "step-00000003.tmp"));
  CHECK(fs::exists(dir / "step-00000005.tmp/rank-00000.h5"));

  report = prune_steps(dir.path(), {.retention = {.keep_last = 1, .keep_every = 0}, .leftovers = kRemoveLeftovers});
  CHECK(steps_of(report.removed) == Steps{2});
  CHECK(steps_of(report.removed_leftovers) == Steps{2, 4, 5});
  CHECK(committed(dir.path()) == Steps{4});
  CHECK(leftovers(dir.path()).empty());
  CHECK(fs::exists(dir / "notes"));
}

TEST_CASE("pruning a step that is a link leaves what it points to") {
  const ScratchDir dir, other;
  save_steps(dir.path(), {2, 3});
  save_steps(other.path(), {1});
  fs::create_directory_symlink(other / "step-00000001", dir / "step-00000001");
  CHECK(committed(dir.path()) == Steps{1, 2, 3});
  prune_checkpoints(dir.path(), 1, 0);
  CHECK(committed(dir.path()) == Steps{3});
  CHECK(committed(other.path()) == Steps{1});
  CHECK(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()) == 1);
}

TEST_CASE("pruning that is killed at any moment leaves whole checkpoints and .tmp only") {
  const ScratchDir made;
  save_steps(made.path(), {1, 2, 3, 4, 5, 6, 7, 8, 9});
  saves::KilledProcess killed(17);
  int interrupted = 0;
  for (int round = 0; round < 60; ++round) {
    const ScratchDir dir;
    fs::copy(made.path(), dir.path(), fs::copy_options::recursive);
    interrupted += killed.run([&] { prune_checkpoints(dir.path(), 2, 4); });
    std::vector<std::string> ignored;
    Steps left;
    for (const CheckpointEntry& e : list_checkpoints(dir.path(), &ignored)) {
      left.push_back(e.step);
      REQUIRE(Checkpoint(e.dir).verify().empty());
    }
    for (const std::string& line : ignored) REQUIRE(saves::has(line, "a save that did not finish"));
    for (const int64_t step : {4, 8, 9}) REQUIRE(std::count(left.begin(), left.end(), step) == 1);
    remove_leftovers(dir.path());
    prune_checkpoints(dir.path(), 2, 4);
    REQUIRE(committed(dir.path()) == Steps{4, 8, 9});
  }
  MESSAGE(interrupted, " of 60 prunings were killed on the way");
}
