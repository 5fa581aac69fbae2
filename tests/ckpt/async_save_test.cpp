#include "libcore/ckpt/async_save.h"

#include <doctest/doctest.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/ckpt/checkpoint.h"
#include "libcore/ckpt/local_tier.h"
#include "tests/ckpt/layouts.h"
#include "tests/ckpt/scratch_dir.h"

using namespace rw;
namespace fs = std::filesystem;

namespace {

const SaverOptions kPlain{};

// One rank's pieces, whose memory the test may change.
struct Held {
  std::vector<std::vector<char>> storage;
  std::vector<TensorPiece> pieces;
  Held(const layouts::Share& share) : storage(share.storage), pieces(share.pieces) {
    for (size_t i = 0; i < pieces.size(); ++i) pieces[i].data = storage[i].data();
  }
  void scribble() {
    for (std::vector<char>& bytes : storage) std::fill(bytes.begin(), bytes.end(), '\x5a');
  }
};

SaveRequest request_of(int64_t step, const Held& held, Comm& comm) {
  SaveRequest r;
  r.step = step;
  r.pieces = held.pieces;
  if (comm.rank() == 0) r.identity = R"({"run_id":"r"})", r.state = Json{{"step", step}}.dump();
  return r;
}

// As the steps of a run do it, here of a millisecond; at most half a minute.
std::vector<SaveNews> steps_until_idle(AsyncSaver& saver, Comm& comm) {
  std::vector<SaveNews> news;
  for (int step = 0; step < 30000 && !saver.idle(); ++step) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    SaveVotes v = saver.votes();
    comm.all_reduce(v.data(), static_cast<int64_t>(v.size()), DType::i64, ReduceOp::sum);
    for (SaveNews& n : saver.advance(v)) news.push_back(std::move(n));
  }
  return news;
}

void check_values(const TensorSource& source, size_t salt) {
  const std::vector<TensorInfo> tensors = layouts::model();
  for (size_t k = 0; k < tensors.size(); ++k) {
    const std::vector<char> expected = layouts::fill(tensors[k], whole(tensors[k].shape), salt + k);
    std::vector<char> found(expected.size());
    source.read(tensors[k].name, whole(tensors[k].shape), tensors[k].dtype, found.data());
    REQUIRE(found == expected);
  }
}

std::vector<SaveNews::Kind> kinds(const std::vector<SaveNews>& news) {
  std::vector<SaveNews::Kind> list;
  for (const SaveNews& n : news) list.push_back(n.kind);
  return list;
}

using Kind = SaveNews::Kind;

}  // namespace

TEST_CASE("what was there at the request is saved, whatever happens to the memory after staging") {
  for (const int ranks : {1, 2, 3, 5}) {
    for (unsigned seed = 0; seed < 4; ++seed) {
      const ScratchDir dir;
      const std::vector<layouts::Share> first = layouts::spread(ranks, seed, 1),
                                        second = layouts::spread(ranks, seed, 7);
      run_thread_ranks(ranks, [&](Comm& comm) {
        const auto me = static_cast<size_t>(comm.rank());
        AsyncSaver saver({.durable = dir / "c", .local = {}, .saver = kPlain}, comm);
        Held one(first[me]), two(second[me]);
        REQUIRE(saver.request(request_of(10, one, comm)));
        REQUIRE_FALSE(saver.request(request_of(11, two, comm)));
        saver.finish_staging();
        one.scribble();
        std::vector<SaveNews> news = steps_until_idle(saver, comm);
        REQUIRE(kinds(news) == std::vector{Kind::written, Kind::committed});
        CHECK(news[1].step == 10);
        CHECK(news[1].tier == "durable");
        CHECK(news[1].bytes > 0);
        // The second save has the second values, not the first ones again.
        REQUIRE(saver.request(request_of(20, two, comm)));
        news = saver.settle();
        REQUIRE(kinds(news) == std::vector{Kind::written, Kind::committed});
        CHECK(saver.idle());
      });
      const Checkpoint a(dir / "c/step-00000010"), b(dir / "c/step-00000020");
      CHECK(a.verify().empty());
      CHECK(b.verify().empty());
      check_values(a, 1);
      check_values(b, 7);
      CHECK(b.state()["step"] == 20);
    }
  }
}

TEST_CASE("a save with the weights of the last one is refused when steps were taken since") {
  for (const int ranks : {1, 3}) {
    const ScratchDir dir;
    const std::vector<layouts::Share> shares = layouts::spread(ranks, 5, 1), changed = layouts::spread(ranks, 5, 2);
    run_thread_ranks(ranks, [&](Comm& comm) {
      const auto me = static_cast<size_t>(comm.rank());
      AsyncSaver saver({.durable = dir / "c", .local = {}, .saver = kPlain}, comm);
      Held held(shares[me]);
      const auto save = [&](int64_t step, const Held& what, bool must_differ) {
        SaveRequest r = request_of(step, what, comm);
        r.must_differ = must_differ;
        saver.request(r);
        return saver.settle();
      };
      REQUIRE(kinds(save(1, held, true)) == std::vector{Kind::written, Kind::committed});  // nothing before it
      REQUIRE(kinds(save(2, held, false)) == std::vector{Kind::written, Kind::committed});
      const std::vector<SaveNews> stale = save(3, held, true);
      REQUIRE(kinds(stale) == std::vector{Kind::stale});
      CHECK(stale[0].error.find("bit for bit those of the last save") != std::string::npos);
      // Moments that stand still are no fault, nor is a single tensor, which is named.
      Held partly(changed[me]);
      for (size_t i = 0; i < partly.pieces.size(); ++i)
        if (partly.pieces[i].name == "large") partly.pieces[i].data = held.pieces[i].data;
      const std::vector<SaveNews> news = save(4, partly, true);
      REQUIRE(kinds(news) == std::vector{Kind::written, Kind::committed});
      CHECK(news[1].unchanged == std::vector<std::string>{"large"});
    });
    std::vector<int64_t> steps;
    for (const CheckpointEntry& e : list_checkpoints(dir / "c")) steps.push_back(e.step);
    CHECK(steps == std::vector<int64_t>{1, 2, 4});
    CHECK_FALSE(fs::exists(dir / "c/step-00000003.tmp"));
  }
}

TEST_CASE("a rank that cannot write fails the save for all, and the next one succeeds") {
  for (const int ranks : {1, 3}) {
    const ScratchDir dir;
    const std::vector<layouts::Share> shares = layouts::spread(ranks, 8, 3);
    std::ofstream(dir / "c");  // a file where the folder should be
    run_thread_ranks(ranks, [&](Comm& comm) {
      AsyncSaver saver({.durable = dir / "c", .local = {}, .saver = kPlain}, comm);
      const Held held(shares[static_cast<size_t>(comm.rank())]);
      REQUIRE(saver.request(request_of(1, held, comm)));
      saver.finish_staging();
      const std::vector<SaveNews> news = steps_until_idle(saver, comm);
      REQUIRE(kinds(news) == std::vector{Kind::failed});
      CHECK(news[0].error.find("rank 0: ") == 0);
      CHECK(news[0].error.find((dir / "c").string()) != std::string::npos);
      comm.barrier();
      if (comm.rank() == 0) fs::remove(dir / "c");
      comm.barrier();
      REQUIRE(saver.request(request_of(2, held, comm)));
      REQUIRE(kinds(saver.settle()) == std::vector{Kind::written, Kind::committed});
    });
    CHECK(list_checkpoints(dir / "c").size() == 1);
  }
}

namespace {

struct Tier {
  int ranks, per_node;
};

fs::path node_dir(const ScratchDir& dir, Comm& comm) {
  return dir / fmt::format("node-{}", comm.nodes()[static_cast<size_t>(comm.rank())]);
}

// Saves step 30 (values of salt 4) in the local tier and durably.
void save_in_tiers(const ScratchDir& dir, const Tier& t, const std::vector<layouts::Share>& shares) {
  run_thread_ranks(
      t.ranks,
      [&](Comm& comm) {
        AsyncSaver saver({.durable = dir / "c", .local = node_dir(dir, comm), .saver = kPlain}, comm);
        Held held(shares[static_cast<size_t>(comm.rank())]);
        SaveRequest r = request_of(30, held, comm);
        r.local = true;
        REQUIRE(saver.request(r));
        saver.finish_staging();
        held.scribble();
        const std::vector<SaveNews> news = steps_until_idle(saver, comm);
        REQUIRE(kinds(news) == std::vector{Kind::written, Kind::committed, Kind::committed});
        CHECK(news[1].tier == "local");
        CHECK(news[2].tier == "durable");
      },
      t.per_node);
}

// Finds the newest local step from the nodes' folders and reads all of it on every rank. Returns the step.
int64_t recover(const ScratchDir& dir, const Tier& t, std::vector<std::string>* notes = nullptr) {
  int64_t step = -2;
  run_thread_ranks(
      t.ranks,
      [&](Comm& comm) {
        std::vector<std::string> said;
        const fs::path local = node_dir(dir, comm);
        const LocalStep found = find_local_step(local, -1, comm, said);
        if (comm.rank() == 0) step = found.step;
        if (comm.rank() == 0 && notes != nullptr) *notes = said;
        if (found.step < 0) return;
        const fs::path here = local / "step-00000030";
        std::vector<std::pair<std::string, Box>> boxes;
        {
          const Checkpoint part(here, Checkpoint::Files::those_here);
          for (const TensorInfo& info : part.tensors()) boxes.emplace_back(info.name, whole(info.shape));
          fetch_files(local, found, files_of(part.manifest(), boxes), comm);
        }
        const Checkpoint all(here);
        CHECK(all.verify().empty());
        check_values(all, 4);
        CHECK(all.identity()["run_id"] == "r");
      },
      t.per_node);
  return step;
}

}  // namespace

TEST_CASE("local saves: any one node may be lost") {
  for (const Tier t : {Tier{4, 2}, Tier{5, 2}, Tier{3, 1}, Tier{2, 0}}) {
    const std::vector<layouts::Share> shares = layouts::spread(t.ranks, 21, 4);
    const int n_nodes = t.per_node == 0 ? 1 : (t.ranks + t.per_node - 1) / t.per_node;
    for (int lost = -1; lost < n_nodes; ++lost) {
      const ScratchDir dir;
      save_in_tiers(dir, t, shares);
      const Checkpoint durable(dir / "c/step-00000030");
      CHECK(durable.verify().empty());
      check_values(durable, 4);
      if (lost >= 0) fs::remove_all(dir / fmt::format("node-{}", lost));
      fs::remove_all(dir / "c");
      CHECK(recover(dir, t) == (n_nodes == 1 && lost >= 0 ? -1 : 30));
    }
  }
}

TEST_CASE("local saves: a damaged file is taken from the other node") {
  const Tier t{4, 2};
  const ScratchDir dir;
  save_in_tiers(dir, t, layouts::spread(t.ranks, 22, 4));
  {
    std::fstream file(dir / "node-0/step-00000030/rank-00001.h5", std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(5000);
    const char other = static_cast<char>(file.get() ^ 1);
    file.seekp(5000);
    file.put(other);
  }
  std::vector<std::string> notes;
  CHECK(recover(dir, t, &notes) == 30);
  REQUIRE(notes.size() == 1);
  CHECK(notes[0].find("node 0: passed over a damaged file") != std::string::npos);
  CHECK(notes[0].find("rank-00001.h5") != std::string::npos);
}

TEST_CASE("local saves: what no node has makes a step worthless, and says so") {
  const Tier t{4, 2};
  const ScratchDir dir;
  save_in_tiers(dir, t, layouts::spread(t.ranks, 23, 4));
  for (const char* node : {"node-0", "node-1"}) fs::remove(dir / node / "step-00000030" / "rank-00002.h5");
  std::vector<std::string> notes;
  CHECK(recover(dir, t, &notes) == -1);
  REQUIRE(notes.size() == 1);
  CHECK(notes[0].find("step 30 is not complete, no node has rank-00002.h5") != std::string::npos);
  // A manifest that is cut is no manifest.
  const ScratchDir other;
  save_in_tiers(other, t, layouts::spread(t.ranks, 24, 4));
  for (const char* node : {"node-0", "node-1"}) fs::resize_file(other / node / "step-00000030/manifest.json", 300);
  CHECK(recover(other, t, &notes) == -1);
  CHECK(notes.size() == 2);
}

TEST_CASE("an unfinished local save is never found") {
  const Tier t{4, 2};
  const ScratchDir dir;
  save_in_tiers(dir, t, layouts::spread(t.ranks, 25, 4));
  for (const char* node : {"node-0", "node-1"})
    fs::rename(dir / node / "step-00000030", dir / node / "step-00000030.tmp");
  CHECK(recover(dir, t) == -1);
}

TEST_CASE("local saves go on while one is uploaded slowly, and two uploads are never under way") {
  const int ranks = 2;
  const ScratchDir dir;
  const std::vector<layouts::Share> a = layouts::spread(ranks, 1, 1), b = layouts::spread(ranks, 1, 2);
  run_thread_ranks(ranks, [&](Comm& comm) {
    const auto me = static_cast<size_t>(comm.rank());
    AsyncSaver saver({.durable = dir / "c", .local = dir / "l", .saver = {.bytes_per_s = 1e6}}, comm);
    const auto save = [&](int64_t step, const Held& held) {
      SaveRequest r = request_of(step, held, comm);
      r.local = true;
      REQUIRE(saver.request(r));
      std::vector<SaveNews> news;
      for (int64_t committed = 0; committed == 0;) {  // until the local one is committed
        SaveVotes v = saver.votes();
        comm.all_reduce(v.data(), static_cast<int64_t>(v.size()), DType::i64, ReduceOp::sum);
        for (SaveNews& n : saver.advance(v)) {
          committed += n.kind == Kind::committed && n.tier == "local";
          news.push_back(std::move(n));
        }
      }
      return news;
    };
    save(1, Held(a[me]));
    CHECK_FALSE(saver.idle());
    const std::vector<SaveNews> news = save(2, Held(b[me]));
    const std::vector<SaveNews> rest = saver.settle();
    // The upload of step 1 ended before, or step 2's was left out.
    const auto count = [&](Kind kind, const char* tier, int64_t step) {
      int64_t n = 0;
      for (const auto* list : {&news, &rest})
        for (const SaveNews& i : *list) n += i.kind == kind && i.tier == tier && i.step == step;
      return n;
    };
    CHECK(count(Kind::committed, "durable", 1) == 1);
    CHECK(count(Kind::committed, "durable", 2) + count(Kind::skipped, "durable", 2) == 1);
  });
  const Checkpoint durable(dir / "c/step-00000001");
  CHECK(durable.verify().empty());
  check_values(durable, 1);
  CHECK(list_checkpoints(dir / "l").size() == 1);  // only the newest stays
  check_values(Checkpoint(dir / "l/step-00000002"), 2);
}
