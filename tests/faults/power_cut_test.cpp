// Cuts the power after every file operation of saving, pruning and replacing checkpoints, in every way a file system
// may then have kept the operations before, and looks at what resume makes of it.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdlib>

#include "libcore/base/files.h"
#include "libcore/base/hash.h"
#include "tests/faults/disk_tree.h"
#include "tests/faults/made_up_saves.h"
#include "tests/faults/power_cut.h"
#include "tests/faults/recorded.h"

using namespace faults;
namespace fs = std::filesystem;

namespace {

bool full() { return std::getenv("RANKWRIGHT_FULL") != nullptr; }
uint64_t seed() {
  const char* text = std::getenv("RANKWRIGHT_SEED");
  return text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
}

// What each of `steps` holds, from runs without faults that end there: they compute the same bits, and the last save of
// a run is never skipped.
SavedTensors saved_by(const Workplace& at, const std::string& run, const std::vector<int64_t>& steps) {
  SavedTensors saved;
  for (const int64_t step : steps) {
    REQUIRE_MESSAGE(at.run(fmt::format("{} --steps {} --resume auto --out unbroken", run, step)) == 0, at.log());
    saved[{step, 0}] = digests_by_hdf5(at / fmt::format("unbroken/checkpoints/step-{:08}", step));
  }
  fs::remove_all(at / "unbroken");
  return saved;
}

void say(const std::string& name, const CutReport& r) {
  fmt::print("{}: states tried {}, recovered {}, begun anew {}, wrong {}\n", name, r.n_states, r.n_recovered, r.n_fresh,
             r.n_wrong);
  std::fflush(stdout);
}

void expect_none_wrong(const std::string& name, const Recording& recording, CutPlan plan) {
  plan.seed = seed();
  plan.random_cuts = full() ? 200 : plan.random_cuts;
  const CutReport r = cut_everywhere(recording, plan);
  say(name, r);
  for (const std::string& wrong : r.wrong) FAIL_CHECK(wrong);
  CHECK(r.n_wrong == 0);
  CHECK(r.n_recovered > 100);
  CHECK(r.n_commits >= 2);
}

std::vector<Operation> record_in(const Workplace& at, const std::string& command) {
  fs::create_directory(at / "root");
  return at.record(at / "root", command);
}

SavedTensors made_up(const std::vector<Saved>& saves) {
  SavedTensors saved;
  for (const Saved& s : saves) {
    for (const MadeUpTensor& t : made_up_tensors()) {
      const std::vector<float> values = made_up_values(t, s.step, s.version);
      saved[s][t.name] = rw::hash64(values.data(), static_cast<int64_t>(values.size() * sizeof(float)));
    }
  }
  return saved;
}

}  // namespace

TEST_CASE("the power is cut while training goes on, saves and prunes") {
  struct Job {
    const char *name, *ranks, *flags;
  };
  // Steps long enough for most saves to be over before the next is due.
  for (const Job& job :
       {Job{"one rank", "", "--global-batch 240"}, Job{"two replicas", "mpirun -n 2", "--global-batch 240 --zero 1"},
        Job{"three stages", "mpirun -n 3", "--global-batch 240 --pp 3"}}) {
    const Workplace at;
    const std::string flags = std::string(job.flags) + " --checkpoint-every 2";
    const SavedTensors saved = saved_by(at, fmt::format("{} $DTRAIN {}", job.ranks, flags), {2, 4, 6, 8, 10});
    CHECK(saved.at({2, 0}) != saved.at({4, 0}));
    const std::string recorded = fmt::format("{} $SHIM $DTRAIN {} --keep-last 2 --out root/run", job.ranks, flags);
    const auto operations = record_in(at, recorded + " --steps 8 && " + recorded + " --steps 10 --resume auto");
    expect_none_wrong(job.name, {.root = at / "root", .operations = operations, .saved = saved},
                      {.scratch = at.fast() / "cut"});
  }
}

TEST_CASE("the power is cut while nodes save in folders of their own, and one of them does not come back") {
  const Workplace at;
  const std::string flags = "--ranks-per-node 2 --tp 2 --zero 1 --global-batch 240 --checkpoint-every 4";
  const SavedTensors saved = saved_by(at, "mpirun -n 4 $DTRAIN " + flags, {2, 4, 6, 8});
  const std::string recorded =
      "mpirun -n 4 $SHIM $DTRAIN " + flags +
      " --keep-last 2 --local-checkpoint-every 2 --local-checkpoint-dir root/node-{node} --out root/run";
  const Recording recording{
      .root = at / "root",
      .operations = record_in(at, recorded + " --steps 6 && " + recorded + " --steps 8 --resume auto"),
      .place = {.ranks = 4, .ranks_per_node = 2, .local = "node-{node}"},
      .saved = saved};
  expect_none_wrong("two nodes", recording, {.scratch = at.fast() / "cut", .random_cuts = 8});
  expect_none_wrong("one node of two", recording,
                    {.scratch = at.fast() / "cut", .one_lost = {"node-0", "node-1"}, .random_cuts = 8});
}

TEST_CASE("the power is cut while a damaged checkpoint is replaced") {
  const Workplace at;
  const std::string run = "$DTRAIN --checkpoint-every 2";
  const SavedTensors saved = saved_by(at, run, {2, 4, 6});
  fs::create_directory(at / "root");
  for (const char* steps : {"2", "4"})
    REQUIRE(at.run(fmt::format("$DTRAIN --steps {} --resume auto --out root/run", steps)) == 0);
  const fs::path damaged = at / "root/run/checkpoints/step-00000004/rank-00000.h5";
  fs::resize_file(damaged, fs::file_size(damaged) - 1);
  const Tree before = read_tree(at / "root");
  const std::string recorded = "$SHIM " + run + " --keep-last 2 --resume auto --out root/run";
  const auto operations = record_in(at, recorded + " --steps 4 && " + recorded + " --steps 6");
  expect_none_wrong(
      "a damaged step replaced",
      {.root = at / "root", .before = before, .operations = operations, .saved = saved, .committed = {2, 0}},
      {.scratch = at.fast() / "cut"});
}

TEST_CASE("the power is cut while a step is saved again with other values") {
  const Workplace at;
  fs::create_directories(at / "root/run");
  const auto operations =
      at.record(at / "root", "echo {} >root/run/run.json\n$SHIM $FAULTS/save_writer $PWD/root/run 3 1 2 3 3 4 4 5");
  const Recording recording{.root = at / "root",
                            .before = {{"run", nullptr}, {"run/run.json", content_of("{}\n")}},
                            .operations = operations,
                            .saved = made_up({{1, 0}, {2, 0}, {3, 0}, {3, 1}, {4, 0}, {4, 1}, {5, 0}})};
  expect_none_wrong("a step saved again", recording, {.scratch = at.fast() / "cut"});
}

TEST_CASE("without one of the syncs the power cuts do harm, and are noticed") {
  const Workplace at;
  fs::create_directories(at / "root/run");
  const auto operations =
      at.record(at / "root", "echo {} >root/run/run.json\n$SHIM $FAULTS/save_writer $PWD/root/run 2 1 2 3 3");
  struct Mutant {
    const char *name, *part;
  };
  for (const Mutant& mutant : {Mutant{"a rank's file", "/rank-"},
                               {"the manifest", "/manifest.json"},
                               {"the step's directory", ".tmp"},
                               {"the directory of checkpoints", "/checkpoints"}}) {
    std::vector<Operation> rest;
    const std::string part = mutant.part;
    for (const Operation& o : operations) {
      const bool whole_name = part == ".tmp" || part == "/checkpoints";
      const bool hit = whole_name ? o.path.ends_with(part) : o.path.find(part) != std::string::npos;
      if (o.op != Op::sync || !hit) rest.push_back(o);
    }
    REQUIRE(rest.size() < operations.size());
    const Recording recording{.root = at / "root",
                              .before = {{"run", nullptr}, {"run/run.json", content_of("{}\n")}},
                              .operations = rest,
                              .saved = made_up({{1, 0}, {2, 0}, {3, 0}, {3, 1}})};
    const CutReport r = cut_everywhere(recording, {.scratch = at.fast() / "cut", .seed = seed(), .random_cuts = 8});
    say(fmt::format("without the sync of {}", mutant.name), r);
    CHECK_MESSAGE(r.n_wrong > 0, mutant.name);
    fs::remove_all(at.fast() / "cut");
  }
}
