// What can go wrong around a checkpoint: full disks, forbidden places, ranks that disagree, damaged files.
#include <doctest/doctest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/hash.h"
#include "libcore/ckpt/checkpoint.h"
#include "tests/ckpt/layouts.h"
#include "tests/ckpt/scratch_dir.h"

using namespace rw;
namespace fs = std::filesystem;

namespace {

const Json kIdentity = {{"run_id", "r-1"}};
const Json kState = {{"step", 1}};

using Shares = std::vector<std::vector<TensorPiece>>;

// Saves from one thread a rank and returns each rank's error, "" where there was none.
std::vector<std::string> try_save(const fs::path& dir, int64_t step, const Shares& shares) {
  std::vector<std::string> errors(shares.size());
  run_thread_ranks(static_cast<int>(shares.size()), [&](Comm& comm) {
    const auto rank = static_cast<size_t>(comm.rank());
    try {
      save_checkpoint(dir, step, shares[rank], kIdentity, kState, comm);
    } catch (const Error& e) {
      errors[rank] = e.what();
      CHECK(e.kind() == ErrorKind::runtime);
    }
  });
  return errors;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// All ranks failed alike; returns the message.
std::string the_error(const std::vector<std::string>& errors) {
  for (const std::string& e : errors) CHECK(e == errors[0]);
  CHECK_FALSE(errors[0].empty());
  return errors[0];
}

auto open_files() { return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator()); }

struct Rows {
  std::vector<float> values = std::vector<float>(300 * 1000, 1.5f);
  // Rank r holds rows [begin[r], begin[r+1]) of "w" (300, 1000).
  Shares shares(const std::vector<int64_t>& begin) const {
    Shares all;
    for (size_t r = 0; r + 1 < begin.size(); ++r) {
      all.push_back({{"w", DType::f32, {300, 1000}, {{begin[r], 0}, {begin[r + 1] - begin[r], 1000}}, values.data()}});
    }
    return all;
  }
};

std::string read_error(const fs::path& dir) {
  try {
    const Checkpoint checkpoint(dir);
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::input);
    return e.what();
  }
  return "";
}

void edit(const fs::path& file, const std::string& from, const std::string& to, bool renew_digest) {
  std::string text = read_file(file);
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  text.replace(at, from.size(), to);
  if (renew_digest) {
    const size_t key = text.rfind("\"digest\": \"");
    text = text.substr(0, key) + "\"digest\": \"" + hex64(hash64(std::string_view(text).substr(0, key))) + "\"\n}\n";
  }
  std::ofstream(file, std::ios::trunc) << text;
}

}  // namespace

TEST_CASE("a full disk on one rank is an error on all; the earlier checkpoint stands") {
  const ScratchDir dir;
  const Rows rows;
  bool mounted = false;
  // The mount lives in this thread's own mount namespace (its rank threads inherit it) and ends with it.
  std::thread([&] {
    mounted = ::unshare(CLONE_NEWNS) == 0 && ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
              ::mount("tmpfs", dir.path().c_str(), "tmpfs", 0, "size=2m") == 0;
    if (!mounted) return;
    const Shares small = rows.shares({0, 0, 100, 300});  // rank 0 holds an empty box
    CHECK(try_save(dir.path(), 5, {{{"a", DType::f32, {8}, whole({8}), rows.values.data()}}})[0] == "");
    REQUIRE(list_checkpoints(dir.path()).size() == 1);
    const auto open_before = open_files();
    // 1.2 MB fits once beside the first checkpoint, not twice.
    CHECK(try_save(dir.path(), 6, small)[0] == "");
    const std::string error = the_error(try_save(dir.path(), 7, small));
    INFO(error);
    CHECK(has(error, "checkpoint of step 7: rank "));
    CHECK(has(error, "No space left on device"));
    CHECK(has(error, "step-00000007.tmp/rank-0000"));
    CHECK_FALSE(fs::exists(dir / "step-00000007.tmp"));
    REQUIRE(list_checkpoints(dir.path()).size() == 2);
    CHECK(Checkpoint(dir / "step-00000006").verify().empty());
    // Filled to the last page: not even the layout fits. Afterwards, with space again, saving works in the same
    // process.
    {
      std::ofstream ballast(dir / "ballast", std::ios::binary);
      const std::vector<char> block(4096, 'b');
      while (ballast.write(block.data(), 4096).flush()) {
      }
    }
    CHECK(has(the_error(try_save(dir.path(), 8, small)), "No space left on device"));
    fs::remove(dir / "ballast");
    fs::remove_all(dir / "step-00000006");
    CHECK(try_save(dir.path(), 8, small)[0] == "");
    CHECK(Checkpoint(dir / "step-00000008").verify().empty());
    CHECK(open_files() == open_before);
  }).join();
  if (!mounted) MESSAGE("not allowed to mount a small file system: the file size limit below stands for it");
}

TEST_CASE("a file size limit is an error on all ranks alike") {
  const ScratchDir dir;
  const Rows rows;
  CHECK(try_save(dir.path(), 1, rows.shares({0, 10, 300}))[0] == "");
  rlimit before;
  ::getrlimit(RLIMIT_FSIZE, &before);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{600'000, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  const std::string error =
      the_error(try_save(dir.path(), 2, rows.shares({0, 10, 300})));  // rank 0 40 kB, rank 1 1.2 MB
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old_handler);
  INFO(error);
  CHECK(has(error, "rank 1: "));
  CHECK(has(error, "rank-00001.h5"));
  CHECK(has(error, "File too large"));
  CHECK_FALSE(fs::exists(dir / "step-00000002.tmp"));
  CHECK(list_checkpoints(dir.path()).size() == 1);
  CHECK(try_save(dir.path(), 2, rows.shares({0, 10, 300}))[0] == "");
}

TEST_CASE("a place that cannot be written") {
  const ScratchDir dir;
  const Rows rows;
  std::ofstream(dir / "file") << "x";
  const std::string error = the_error(try_save(dir / "file/checkpoints", 1, rows.shares({0, 10, 300})));
  CHECK(has(error, "rank 0: "));
  CHECK(has(error, (dir / "file/checkpoints").string()));
  CHECK(has(error, "Not a directory"));
  CHECK(has(the_error(try_save(dir / "file", 1, rows.shares({0, 10, 300}))), (dir / "file").string()));
}

TEST_CASE("ranks whose boxes do not cover every tensor exactly once") {
  const ScratchDir dir;
  const Rows rows;
  CHECK(try_save(dir.path(), 1, rows.shares({0, 10, 300}))[0] == "");
  CHECK(has(the_error(try_save(dir.path(), 2, rows.shares({0, 10, 299}))),
            "tensor w: shape (300, 1000): expected boxes over all 300000 elements, found 299000 covered"));
  Shares twice = rows.shares({0, 10, 300});
  twice[0][0].box.extent[0] = 12;
  CHECK(has(the_error(try_save(dir.path(), 2, twice)), "tensor w: box [10:12, 0:1000] is written more than once"));
  Shares scalars(2, {{"s", DType::f32, {}, {}, rows.values.data()}});
  CHECK(has(the_error(try_save(dir.path(), 2, scalars)), "tensor s: is written more than once"));
  Shares other = rows.shares({0, 10, 300});
  other[1][0].shape = {301, 1000};
  CHECK(has(the_error(try_save(dir.path(), 2, other)),
            "tensor w: rank 1 wrote f32 (301, 1000), an earlier rank f32 (300, 1000)"));
  CHECK(list_checkpoints(dir.path()).size() == 1);
  CHECK_FALSE(fs::exists(dir / "step-00000002.tmp"));
}

TEST_CASE("damaged checkpoints say which file, what was expected and what was found") {
  const ScratchDir dir;
  const Rows rows;
  const fs::path step = dir / "step-00000001", manifest = step / "manifest.json", shard = step / "rank-00001.h5";
  const auto fresh = [&] {
    fs::remove_all(step);
    REQUIRE(try_save(dir.path(), 1, rows.shares({0, 10, 300}))[0] == "");
  };
  fresh();
  const auto size = fs::file_size(shard);
  fs::resize_file(shard, size - 1);
  std::string error = read_error(step);
  CHECK(has(error, shard.string() + ": expected " + std::to_string(size) + " bytes"));
  CHECK(has(error, "found " + std::to_string(size - 1)));
  CHECK(list_checkpoints(dir.path()).empty());
  fs::resize_file(shard, size + 3);
  CHECK(has(read_error(step), "extended"));
  fs::resize_file(shard, 0);
  CHECK(has(read_error(step), "found 0"));
  fs::remove(shard);
  CHECK(has(read_error(step), shard.string() + ": listed in manifest.json"));

  fresh();
  fs::remove(manifest);
  CHECK(has(read_error(step), "expected manifest.json, found none"));
  CHECK(has(read_error(dir / "nothing"), "expected a checkpoint directory, found nothing"));

  fresh();
  edit(manifest, "\"step\": 1", "\"step\": 2", false);
  error = read_error(step);
  CHECK(has(error, "manifest.json: key 'digest': expected "));
  CHECK(has(error, " for this content, found "));
  fresh();
  edit(manifest, "\"step\": 1", "\"step\": 2", true);
  CHECK(has(read_error(step), "expected a manifest of step 1, found step 2"));
  CHECK(list_checkpoints(dir.path()).empty());
  fresh();
  edit(manifest, "\"step\": 1", "\"step\": -1", true);
  CHECK(has(read_error(step), "key 'step': expected at least 0, found -1"));

  struct Lie {
    const char *from, *to, *expected;
  };
  const Lie lies[] = {
      {"\"at\":", "\"at\":9", "tensor w: box"},
      {"\"dtype\": \"f32\"", "\"dtype\": \"f33\"", "tensor w: key 'dtype': expected f32"},
      {"\"dtype\": \"f32\"", "\"dtype\": \"f64\"", "tensor w: box"},
      {"\"shape\": [300,1000]", "\"shape\": [301,1000]", "expected boxes over all 301000 elements, found 300000"},
      {"\"shape\": [300,1000]", "\"shape\": [9000000000,9000000000]", "larger than any file"},
      {"\"extent\":[290,1000]", "\"extent\":[290,1001]", "lies outside the shape"},
      {"\"extent\":[290,1000]", "\"extent\":[290]", "lies outside the shape"},
      {"\"file\":1", "\"file\":2", "file number 2 of 2"},
      {"rank-00000.h5", "../rank-0.h5", "expected a plain file name"},
      {"\"version\": 1", "\"version\": 7", "key 'version': expected 1, found 7"},
      {"rankwright-checkpoint", "other", "key 'format'"},
      {"\"files\"", "\"fires\"", "'files' is missing"},
  };
  for (const Lie& lie : lies) {
    fresh();
    edit(manifest, lie.from, lie.to, true);
    error = read_error(step);
    INFO(lie.to, " -> ", error);
    CHECK(has(error, manifest.string()));
    CHECK(has(error, lie.expected));
  }

  // Any cut and any changed byte of a manifest is seen.
  fresh();
  const std::string text = read_file(manifest);
  std::mt19937 random(3);
  for (int i = 0; i < 300; ++i) {
    std::string damaged = text;
    const size_t at = random() % text.size();
    if (i % 2 == 0) damaged.resize(at);
    else damaged[at] = static_cast<char>(damaged[at] ^ (1 << (i % 8)));
    std::ofstream(manifest, std::ios::trunc | std::ios::binary) << damaged;
    REQUIRE_FALSE(read_error(step).empty());
  }
}

TEST_CASE("requests that a checkpoint cannot serve") {
  const ScratchDir dir;
  const Rows rows;
  REQUIRE(try_save(dir.path(), 1, rows.shares({0, 10, 300}))[0] == "");
  const Checkpoint checkpoint(dir / "step-00000001");
  std::vector<float> out(300 * 1000);
  const auto error_of = [&](const std::string& name, const Box& box, DType t) -> std::string {
    try {
      checkpoint.read(name, box, t, out.data());
    } catch (const Error& e) {
      CHECK(e.kind() == ErrorKind::input);
      CHECK(has(e.what(), checkpoint.where()));
      return e.what();
    }
    return "";
  };
  CHECK(has(error_of("v", whole({1}), DType::f32), "the nearest is w"));
  CHECK(has(error_of("w", whole({301, 1000}), DType::f32), "[0:301, 0:1000], found (300, 1000)"));
  CHECK(has(error_of("w", whole({300}), DType::f32), "found (300, 1000)"));
  CHECK(has(error_of("w", whole({300, 1000}), DType::f16), "expected f16, found f32"));
  CHECK(error_of("w", {{299, 999}, {0, 1}}, DType::f32).empty());
}
