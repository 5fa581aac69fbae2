// The disk benches: space is kept free, folders go away, rates of ranks by hand, records of small runs.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "libcore/base/error.h"
#include "libcore/bench/disk/bench_tensors.h"
#include "libcore/bench/disk/checkpoint_bench.h"
#include "libcore/bench/disk/rank_rates.h"
#include "libcore/bench/disk/raw_file.h"
#include "libcore/bench/disk/scratch_dir.h"
#include "libcore/bench/disk/storage_bench.h"

namespace fs = std::filesystem;
using namespace rw;

namespace {

// A folder for a test, empty again at its end but for what the test itself made.
struct Folder {
  fs::path path = fs::temp_directory_path() / ("disk_test." + std::to_string(::getpid()));
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
};

}  // namespace

TEST_CASE("a tenth stays free") {
  CHECK(leaves_a_tenth(400, 500, 1000));
  CHECK_FALSE(leaves_a_tenth(401, 500, 1000));
  CHECK_FALSE(leaves_a_tenth(1, 100, 1000));
  CHECK_FALSE(leaves_a_tenth(1, 50, 1000));
  CHECK_THROWS_WITH_AS(check_free_space("/", int64_t{1} << 60), doctest::Contains("a tenth stays free"), Error);
  CHECK_THROWS_AS(check_free_space("/no/such/folder", 1), Error);
}

TEST_CASE("a scratch folder goes with its owner, by the destructor or by a signal that nobody can catch") {
  const Folder folder;
  fs::path path;
  {
    const ScratchDir scratch(folder.path);
    path = scratch.path();
    CHECK(fs::is_directory(path));
  }
  CHECK_FALSE(fs::exists(path));
  CHECK_THROWS_AS(ScratchDir(folder.path / "absent"), Error);

  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const ScratchDir scratch(folder.path);
    {
      RawBlock block;
      write_raw(scratch.path() / "file", 8192, FileCache::keep, block);
    }
    [[maybe_unused]] const ssize_t n = ::write(ready[1], "x", 1);
    ::pause();
    ::_exit(0);
  }
  char byte = 0;
  REQUIRE(::read(ready[0], &byte, 1) == 1);
  CHECK_FALSE(fs::is_empty(folder.path));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  for (int i = 0; i < 500 && !fs::is_empty(folder.path); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK(fs::is_empty(folder.path));
  ::close(ready[0]), ::close(ready[1]);
}

TEST_CASE("raw files hold what was asked, of any number of pages") {
  const Folder folder;
  RawBlock block;
  for (const int64_t pages : {1, 3, 4097})
    for (const FileCache cache : {FileCache::bypass, FileCache::keep}) {
      CHECK(write_raw(folder.path / "f", pages * 4096, cache, block) > 0);
      CHECK(fs::file_size(folder.path / "f") == static_cast<uintmax_t>(pages * 4096));
      CHECK(read_raw(folder.path / "f", ReadWay::buffered, block) > 0);
      const double direct = read_raw(folder.path / "f", ReadWay::direct, block);
      CHECK((std::isnan(direct) || direct > 0));
      const double share = drop_from_cache(folder.path / "f");
      CHECK(share >= 0);
      CHECK(share <= 1);
    }
  CHECK_THROWS_AS(read_raw(folder.path / "absent", ReadWay::buffered, block), Error);
  const SmallFiles t = time_small_files(folder.path, 5);
  CHECK(t.create_s > 0);
  CHECK(t.create_p99_s >= t.create_s);
}

TEST_CASE("rates of three ranks: all bytes over the longest time") {
  run_thread_ranks(3, [](Comm& comm) {
    const double seconds[] = {1, 2, 4};
    const RankRates r = rank_rates(comm, 100 * (comm.rank() + 1), seconds[comm.rank()]);
    CHECK(r.total == 600.0 / 4);
    CHECK(r.least == 300.0 / 4);
    CHECK(r.most == 100);
    const RankRates unknown = rank_rates(comm, 100, comm.rank() == 1 ? NAN : 1);
    CHECK(std::isnan(unknown.total));
  });
  BenchRecord record;
  add_rates(record, {"x", {{2e9, 1e9, 3e9}, {4e9, 1e9, 3e9}}}, 2);
  add_rates(record, {"unknown", {{NAN, NAN, NAN}}}, 2);
  REQUIRE(record.metrics.size() == 3);
  CHECK(find_metric(record, "x")->samples == std::vector<double>{2, 4});
  CHECK(find_metric(record, "unknown") == nullptr);
}

TEST_CASE("tensors have the bytes asked for, in pieces of their own") {
  for (const int64_t bytes : {int64_t{4}, int64_t{40004}, int64_t{7340032}}) {
    const BenchTensors t(bytes, 1);
    int64_t sum = 0;
    for (const TensorPiece& p : t.pieces()) sum += p.box.size() * 4;
    CHECK(sum == bytes);
    CHECK(t.bytes() == bytes);
  }
}

TEST_CASE("storage: a record with every rate, and nothing left behind") {
  const Folder folder;
  StorageSpec spec;
  spec.dir = folder.path.string();
  spec.size = 1'000'003, spec.repeats = 2, spec.small_files = 3;
  for (const int ranks : {1, 2})
    run_thread_ranks(ranks, [&](Comm& comm) {
      const BenchRecord record = run_storage_bench({.spec = spec, .comm = comm, .progress = nullptr});
      for (const char* name : {"write_direct", "write_buffered_fsync", "read_cached", "small_create_fsync_us"}) {
        REQUIRE_MESSAGE(find_metric(record, name) != nullptr, name);
        CHECK(find_metric(record, name)->samples.size() == 2);
      }
      CHECK((find_metric(record, "write_direct_rank_min") != nullptr) == (ranks == 2));
      CHECK(Json::parse(record.details)["bytes_per_rank"] == 1'003'520);
    });
  CHECK(fs::is_empty(folder.path));
  spec.size = int64_t{1} << 60;
  run_thread_ranks(2, [&](Comm& comm) {
    CHECK_THROWS_AS(run_storage_bench({.spec = spec, .comm = comm, .progress = nullptr}), Error);
  });
  CHECK(fs::is_empty(folder.path));
}

TEST_CASE("checkpoints: what was saved is read back, counts are exact, nothing is left behind") {
  const Folder folder;
  CheckpointBenchSpec spec;
  spec.dir = folder.path.string();
  spec.size = 300'004, spec.repeats = 2, spec.loop_s = 0.06;
  for (const int ranks : {1, 3})
    run_thread_ranks(ranks, [&](Comm& comm) {
      const BenchRecord record = run_checkpoint_bench({.spec = spec, .comm = comm, .progress = nullptr});
      for (const char* name :
           {"blocking_s", "save_s", "save", "raw_write", "save_over_raw_write", "verify", "load", "loop_slowdown"}) {
        REQUIRE_MESSAGE(find_metric(record, name) != nullptr, name);
        CHECK(find_metric(record, name)->samples.size() == 2);
      }
      CHECK(find_metric(record, "file_bytes")->samples[0] > 300'004.0 * ranks);
      CHECK(find_metric(record, "blocking_s")->limit.value() > 0);
      CHECK(Json::parse(record.details)["tensor_bytes"] == 300'004 * ranks);
    });
  spec.tier = "local";
  run_thread_ranks(2, [&](Comm& comm) {
    CHECK_THROWS_WITH_AS(run_checkpoint_bench({.spec = spec, .comm = comm, .progress = nullptr}),
                         doctest::Contains("two nodes"), Error);
  });
  run_thread_ranks(
      4,
      [&](Comm& comm) { CHECK(run_checkpoint_bench({.spec = spec, .comm = comm, .progress = nullptr}).repeats == 2); },
      2);
  spec.tier = "durable", spec.model = "tiny-llama";
  run_thread_ranks(2, [&](Comm& comm) {
    const BenchRecord record = run_checkpoint_bench({.spec = spec, .comm = comm, .progress = nullptr});
    CHECK(find_metric(record, "pieces")->samples[0] > 10);
  });
  spec.model = "no-such-model";
  run_thread_ranks(2, [&](Comm& comm) {
    CHECK_THROWS_AS(run_checkpoint_bench({.spec = spec, .comm = comm, .progress = nullptr}), Error);
  });
  CHECK(fs::is_empty(folder.path));
}
