// What watched communicators count and keep, and whom the watchdog's verdict names.
#include "libcore/comm/watch.h"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "libcore/base/error.h"
#include "libcore/base/files.h"

using namespace rw;

namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

struct ScratchFolder {
  std::filesystem::path path;
  ScratchFolder() {
    static std::atomic<int> n{0};
    path =
        std::filesystem::temp_directory_path() / ("rw-watch-" + std::to_string(getpid()) + "-" + std::to_string(n++));
    std::filesystem::create_directories(path);
  }
  ~ScratchFolder() { std::filesystem::remove_all(path); }
};

std::shared_ptr<CommRecord> record_of(int rank) {
  auto record = std::make_shared<CommRecord>();
  record->rank = rank;
  record->host = "host" + std::to_string(rank);
  return record;
}

// Every operation once or more; the same calls for a rank of any communicator.
void use_all(Comm& c) {
  const int next = (c.rank() + 1) % c.size(), previous = (c.rank() + c.size() - 1) % c.size();
  std::vector<float> x(1000), y(1000);
  const bool is_meta = c.name() == "meta";
  SharedBuffer buffer = c.allocate(4000);
  float* data = is_meta ? static_cast<float*>(buffer.data) : x.data();
  c.all_reduce(data, 1000, DType::f32, ReduceOp::sum);
  c.all_reduce(data, 0, DType::f64, ReduceOp::max);
  c.reduce_scatter(data, even_cuts(999, c.size()), DType::bf16);
  c.all_gather(data, data, even_cuts(0, c.size()), DType::f32);
  std::vector<int64_t> all(static_cast<size_t>(c.size()));
  const int64_t mine = c.rank();
  c.all_gather(&mine, all.data(), 8);
  c.broadcast(data, 120, c.size() - 1);
  c.barrier();
  c.barrier();
  const Request sent = c.send_start(x.data(), 400, next, 3);
  const Request received = c.recv_start(y.data(), 400, previous, 3);
  while (!c.done(sent) || !c.done(received)) c.progress();
  c.wait(received);
  CHECK(c.all_reduce_value(2.5, ReduceOp::max) == 2.5);
  CHECK(c.broadcast_text("text", 0) == "text");
  CHECK(c.gather_text("abc").back() == "abc");
}

// Ranks in pairs {0,1}, {2,3}, ... and in one world; who fails writes its file.
struct Ranks {
  Comm& world;
  std::unique_ptr<Comm> all, pair;
  std::shared_ptr<CommRecord> record;
  explicit Ranks(Comm& w) : world(w), record(record_of(w.rank())) {
    all = watch(w.split(0, w.rank()), "dp", record);
    pair = watch(w.split(w.rank() / 2, w.rank()), "tp", record);
    all->set_timeout(0.1);
    pair->set_timeout(0.1);
  }
};

std::string verdict_of(int ranks, const std::function<void(Ranks&)>& body) {
  ScratchFolder folder;
  std::atomic<int> ended{0};
  run_thread_ranks(ranks, [&](Comm& world) {
    Ranks r(world);
    world.barrier();
    try {
      body(r);
    } catch (const Error&) {
      write_watchdog(*r.record, folder.path);
    }
    // Boards stay until all have given up.
    ended.fetch_add(1);
    while (ended.load() < ranks) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  return watchdog_verdict(folder.path, ranks);
}

}  // namespace

TEST_CASE("a meta communicator is counted as a real one") {
  for (int ranks : {1, 2, 3}) {
    CAPTURE(ranks);
    std::vector<std::shared_ptr<CommRecord>> real;
    for (int r = 0; r < ranks; ++r) real.push_back(record_of(r));
    run_thread_ranks(ranks, [&](Comm& c) {
      c.set_timeout(60);
      auto watched = watch(c.split(0, c.rank()), "dp", real[static_cast<size_t>(c.rank())]);
      use_all(*watched);
    });
    for (int r = 0; r < ranks; ++r) {
      auto record = record_of(r);
      auto meta = watch(make_meta_comm(r, ranks), "dp", record);
      CHECK(meta->rank() == r);
      CHECK(meta->size() == ranks);
      use_all(*meta);
      CHECK(record->counts == real[static_cast<size_t>(r)]->counts);
    }
    const auto& counts = real[0]->counts;
    CHECK(counts.at({"dp", CommKind::all_reduce}) == CommCount{.calls = 3, .bytes = 4008});
    CHECK(counts.at({"dp", CommKind::reduce_scatter}) == CommCount{.calls = 1, .bytes = 1998});
    CHECK(counts.at({"dp", CommKind::all_gather}) == CommCount{.calls = 4, .bytes = ranks * (8 + 8 + 3)});
    CHECK(counts.at({"dp", CommKind::broadcast}) == CommCount{.calls = 3, .bytes = 120 + 8 + 4});
    CHECK(counts.at({"dp", CommKind::barrier}) == CommCount{.calls = 2, .bytes = 0});
    CHECK(counts.at({"dp", CommKind::send}) == CommCount{.calls = 1, .bytes = 400});
    CHECK(counts.at({"dp", CommKind::recv}) == CommCount{.calls = 1, .bytes = 400});
  }
}

TEST_CASE("memory of a meta communicator: addresses that differ") {
  auto meta = make_meta_comm(5, 16384);
  const SharedBuffer a = meta->allocate(int64_t{1} << 40), b = meta->allocate(0), c = meta->allocate(1);
  CHECK(a.data != nullptr);
  CHECK(static_cast<char*>(b.data) - static_cast<char*>(a.data) >= int64_t{1} << 40);
  CHECK(c.data != b.data);
  CHECK(reinterpret_cast<uintptr_t>(c.data) % 64 == 0);
  CHECK(meta->all_reduce_value(int64_t{7}, ReduceOp::sum) == 7);
  CHECK(meta->gather_text("x").size() == 16384);
  CHECK_THROWS_AS(meta->split(0, 0), CheckFailed);
}

TEST_CASE("the last operations are kept, with where they happened") {
  auto record = record_of(0);
  auto comm = watch(make_self_comm(), "tp", record);
  record->phase = "forward";
  record->step = 7;
  comm->barrier();
  record->micro_batch = 3;
  double x = 1;
  const Request open = comm->all_reduce_start(&x, 1, DType::f64, ReduceOp::sum);
  std::string lines = record->json_lines();
  CHECK(has(lines, R"({"op":"barrier","group":"tp","sequence":0,"bytes":0,"state":"done","seconds":)"));
  CHECK(has(lines, R"("phase":"forward","step":7})"));
  CHECK(has(lines, R"({"op":"all_reduce","group":"tp","sequence":1,"bytes":8,"state":"started","seconds":)"));
  CHECK(has(lines, R"("phase":"forward","step":7,"micro_batch":3})"));
  comm->wait(open);
  comm->send(&x, 8, 0, 1);
  comm->recv(&x, 8, 0, 1);
  CHECK(has(record->json_lines(), R"({"op":"recv","group":"tp","sequence":0,"bytes":8,"peer":0,"state":"done")"));
  CHECK(!has(record->json_lines(), "started"));
  CHECK(record->exposed_s > 0);

  const Request early = comm->all_reduce_start(&x, 1, DType::f64, ReduceOp::sum);
  for (int i = 0; i < 100; ++i) comm->barrier();
  comm->wait(early);
  lines = record->json_lines();
  CHECK(std::count(lines.begin(), lines.end(), '\n') == CommRecord::kKept);
  CHECK(!has(lines, "all_reduce"));
  CHECK(has(lines, R"("sequence":102)"));
  CHECK(record->n_ops == 105);
  // A failure is kept even when it began long ago.
  CHECK_THROWS_AS(comm->recv(&x, 8, 0, 1), CheckFailed);
  CHECK(has(record->json_lines(), "failed"));
  CHECK(comm->split(0, 0)->size() == 1);
  CHECK(record->n_ops == 106);
}

TEST_CASE("the timeout of a watched communicator is the inner one's") {
  run_thread_ranks(2, [](Comm& c) {
    auto watched = watch(c.split(0, 0), "dp", record_of(c.rank()));
    CHECK(watched->timeout_s() == c.timeout_s());
    watched->set_timeout(0.05);
    if (c.rank() == 0) CHECK_THROWS_AS(watched->barrier(), Error);  // within the 300 s of the default
    c.barrier();
  });
}

TEST_CASE("a rank that is held is named, though it writes nothing, and though others wait for its victims") {
  const std::string verdict = verdict_of(4, [](Ranks& r) {
    double x = 1;
    r.record->phase = "forward";
    r.pair->all_reduce(&x, 1, DType::f64, ReduceOp::sum);
    r.record->phase = "backward";
    r.record->step = 5;
    r.record->micro_batch = 1;
    if (r.world.rank() == 3) return;  // held
    std::vector<float> data(1 << 20);
    if (r.world.rank() == 2) {
      r.pair->set_timeout(0.05);
      r.pair->all_reduce(data.data(), 1 << 20, DType::f32, ReduceOp::sum);
    }
    r.all->barrier();
  });
  CAPTURE(verdict);
  CHECK(has(verdict, "rank 3 (host "));
  CHECK(has(verdict, "did not arrive at all_reduce #1 of tp group {2,3}, 4.0 MiB, step 5, backward, micro-batch 1"));
  CHECK(has(verdict, "took part in all_reduce #0 of that group (step 0, forward) and wrote no file"));
  CHECK(!has(verdict, "rank 2 (host host2) did not"));
  CHECK(!has(verdict, "rank 0"));
}

TEST_CASE("a rank that went on to something else is named with what it last finished") {
  const std::string verdict = verdict_of(3, [](Ranks& r) {
    r.all->barrier();
    if (r.world.rank() == 1) fail(ErrorKind::runtime, "out of memory");
    double x = 1;
    r.all->all_reduce(&x, 1, DType::f64, ReduceOp::sum);
  });
  CAPTURE(verdict);
  CHECK(has(verdict, "rank 1 (host host1) did not arrive at all_reduce #1 of dp group {0,1,2}, 8 B"));
  CHECK(has(verdict, "it last finished barrier #0 of dp group {0,1,2}"));
}

TEST_CASE("a message that was not sent, and one that was not received") {
  std::string verdict = verdict_of(2, [](Ranks& r) {
    double x = 1;
    if (r.world.rank() == 0) r.all->send(&x, 8, 1, 0);
    else r.all->recv(&x, 8, 0, 0);
    if (r.world.rank() == 1) r.all->recv(&x, 8, 0, 0);
  });
  CAPTURE(verdict);
  CHECK(has(verdict, "rank 0 (host "));
  CHECK(has(verdict, "did not send what rank 1 (host host1) waited for: recv #1 of dp group {0,1}, 8 B"));
  CHECK(has(verdict, "took part in recv #0"));

  verdict = verdict_of(2, [](Ranks& r) {
    std::vector<char> x(1 << 20);
    if (r.world.rank() == 0) r.all->send(x.data(), 1 << 20, 1, 0);
  });
  CHECK(has(verdict, "did not receive what rank 0 (host host0) waited for: send #0 of dp group {0,1}, 1.0 MiB"));
}

TEST_CASE("ranks that wait for each other, and ranks that disagree") {
  std::string verdict = verdict_of(2, [](Ranks& r) {
    if (r.world.rank() == 0) r.all->barrier();
    r.pair->barrier();
    r.all->barrier();
  });
  CAPTURE(verdict);
  CHECK(has(verdict, "rank 0 (host host0) waits for rank 1 at barrier #0 of dp group {0,1}"));
  CHECK(has(verdict, "rank 1 (host host1) waits for rank 0 at barrier #0 of tp group {0,1}"));

  verdict = verdict_of(2, [](Ranks& r) {
    double x = 1;
    if (r.world.rank() == 0) r.all->barrier();
    else r.all->all_reduce(&x, 1, DType::f64, ReduceOp::sum);
  });
  CHECK(has(verdict, "rank 0 (host host0) called barrier #0 of dp group {0,1}"));
  CHECK(has(verdict, "rank 1 (host host1) called all_reduce of 8 B instead"));
}

TEST_CASE("many missing ranks are counted, a healthy job and damaged files say nothing") {
  const std::string verdict = verdict_of(8, [](Ranks& r) {
    if (r.world.rank() < 2) r.all->barrier();
  });
  CAPTURE(verdict);
  CHECK(has(verdict, "rank 5 (host "));
  CHECK(!has(verdict, "rank 6 (host "));
  CHECK(has(verdict, "so did 2 other ranks not"));

  CHECK(verdict_of(2, [](Ranks& r) { r.all->barrier(); }).empty());

  ScratchFolder folder;
  CHECK(watchdog_verdict(folder.path / "missing", 4).empty());
  for (const char* text : {"", "{", "[]\n", "{\"rank\":0,\"host\":\"a\",\"groups\":[{}]}\n",
                           "{\"rank\":0,\"host\":\"a\",\"groups\":[]}\n7\n"}) {
    write_file_atomic(folder.path / "rank-0.jsonl", text);
    CHECK(watchdog_verdict(folder.path, 1).empty());
  }
  write_watchdog(*record_of(1), "/dev/null/not-a-folder");  // a warning, no exception
}
