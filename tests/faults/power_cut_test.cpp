// Cuts the power after every file operation of saving, pruning and replacing checkpoints, in every way a file system
// may then have kept the operations before, and looks at what resume makes of it.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

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
  plan.random_cuts = full() ? 100 : plan.random_cuts;
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

// A run of save_writer with so many ranks; what it saves is known without reading any of it.
Recording made_up_saves(const Workplace& at, int ranks, const std::vector<Saved>& saves) {
  Recording recording{.root = at / "root"};
  fs::create_directories(at / "root/run");
  std::ofstream(at / "root/run/run.json") << R"({"run_id": "made-up"})";
  recording.before = read_tree(at / "root");
  std::string steps;
  for (const Saved& s : saves) {
    steps += fmt::format(" {}", s.step);
    for (const MadeUpTensor& t : made_up_tensors()) {
      const std::vector<float> values = made_up_values(t, s.step, s.version);
      recording.saved[s][t.name] = rw::hash64(values.data(), static_cast<int64_t>(values.size() * sizeof(float)));
    }
  }
  recording.operations =
      at.record(at / "root", fmt::format("$SHIM $FAULTS/save_writer $PWD/root/run {}{}", ranks, steps));
  return recording;
}

// Losses by step, as the text of metrics.jsonl has them.
std::map<int64_t, std::string> losses(const fs::path& out) {
  std::map<int64_t, std::string> losses;
  std::ifstream lines(out / "metrics.jsonl");
  for (std::string line; std::getline(lines, line);) {
    const auto entry = nlohmann::json::parse(line);
    losses[entry["step"].get<int64_t>()] = entry["loss"].dump();
  }
  return losses;
}

// Goes on with a copy of the run to step 12; "" when that gives the losses of `expected`.
std::string goes_on(const Workplace& at, const fs::path& root, const std::string& command,
                    const std::map<int64_t, std::string>& expected) {
  fs::remove_all(at / "again");
  fs::copy(root / "run", at / "again", fs::copy_options::recursive);
  if (at.run(command + " --steps 12 --resume auto --out again") != 0) return "going on fails: " + at.log();
  const std::map<int64_t, std::string> found = losses(at / "again");
  if (found.empty() || found.rbegin()->first != 12) return "it did not go on to step 12";
  for (const auto& [step, loss] : found)
    if (expected.at(step) != loss) return fmt::format("step {}: loss {}, expected {}", step, loss, expected.at(step));
  return "";
}

}  // namespace

TEST_CASE("the power is cut while training goes on, saves and prunes") {
  struct Job {
    const char *name, *ranks, *flags;
  };
  // Steps long enough for most saves to be over before the next is due.
  for (const Job& job :
       {Job{"one rank", "", "--global-batch 240"}, Job{"two replicas", "mpirun -n 2", "--global-batch 240 --zero 1"},
        Job{"three replicas", "mpirun -n 3", "--global-batch 240"}}) {
    const Workplace at;
    const std::string flags = std::string(job.flags) + " --checkpoint-every 2",
                      plain = job.ranks + (" $DTRAIN " + flags);
    const SavedTensors saved = saved_by(at, plain, {2, 4, 6, 8, 10});
    CHECK(saved.at({2, 0}) != saved.at({4, 0}));
    REQUIRE(at.run(plain + " --steps 12 --out whole") == 0);
    const std::map<int64_t, std::string> expected = losses(at / "whole");
    REQUIRE(expected.size() == 12);
    const std::string recorded = fmt::format("{} $SHIM $DTRAIN {} --keep-last 2 --out root/run", job.ranks, flags);
    const auto operations = record_in(at, recorded + " --steps 8 && " + recorded + " --steps 10 --resume auto");
    const int64_t every = job.ranks[0] == '\0' ? 20 : 200;
    expect_none_wrong(job.name, {.root = at / "root", .operations = operations, .saved = saved},
                      {.scratch = at.fast() / "cut", .visit = [&](int64_t state, const fs::path& root) {
                         return state % every != 0 ? "" : goes_on(at, root, plain, expected);
                       }});
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
  expect_none_wrong("two nodes", recording, {.scratch = at.fast() / "cut", .random_cuts = 2});
  expect_none_wrong("one node of two", recording,
                    {.scratch = at.fast() / "cut", .one_lost = {"node-0", "node-1"}, .random_cuts = 2});
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
  expect_none_wrong("a step saved again",
                    made_up_saves(at, 3, {{1, 0}, {2, 0}, {3, 0}, {3, 1}, {4, 0}, {4, 1}, {5, 0}}),
                    {.scratch = at.fast() / "cut"});
}

TEST_CASE("without one of the syncs the power cuts do harm, and are noticed") {
  const Workplace at;
  const Recording sound = made_up_saves(at, 2, {{1, 0}, {2, 0}, {3, 0}, {3, 1}});
  const auto part_of = [](const char* part) {
    return [part](const std::string& path) { return path.find(part) != std::string::npos; };
  };
  const auto end_is = [](const char* end) { return [end](const std::string& path) { return path.ends_with(end); }; };
  struct Mutant {
    const char* name;
    std::function<bool(const std::string& path)> hit;
  };
  for (const Mutant& mutant :
       {Mutant{"a rank's file", part_of("/rank-")}, Mutant{"the manifest", part_of("/manifest.json")},
        Mutant{"the step's directory", end_is(".tmp")},
        Mutant{"the directory of checkpoints", end_is("/checkpoints")}}) {
    Recording mutated = sound;
    std::erase_if(mutated.operations, [&](const Operation& o) { return o.op == Op::sync && mutant.hit(o.path); });
    REQUIRE(mutated.operations.size() < sound.operations.size());
    const CutReport r = cut_everywhere(mutated, {.scratch = at.fast() / "cut", .seed = seed(), .random_cuts = 4});
    say(fmt::format("without the sync of {}", mutant.name), r);
    CHECK_MESSAGE(r.n_wrong > 0, mutant.name);
    fs::remove_all(at.fast() / "cut");
  }
}
