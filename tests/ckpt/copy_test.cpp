#include "libcore/ckpt/copy.h"

#include <doctest/doctest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include <csignal>
#include <thread>

#include "libcore/base/error.h"
#include "tests/ckpt/saves.h"
#include "tests/ckpt/scratch_dir.h"

using namespace rw;
namespace fs = std::filesystem;

namespace {

using Existing = CopyOptions::Existing;

CopyReport copy_to(const fs::path& source, const fs::path& target, Existing existing = Existing::refuse) {
  return copy_checkpoint({.source = source, .target = target, .existing = existing, .progress = nullptr});
}

struct Failure {
  ErrorKind kind = ErrorKind::interrupted;
  std::string text;
};

Failure failure(const fs::path& source, const fs::path& target, Existing existing = Existing::refuse) {
  try {
    copy_to(source, target, existing);
  } catch (const Error& e) {
    return {e.kind(), e.what()};
  }
  return {};
}

bool holds_nothing(const fs::path& dir) { return fs::directory_iterator(dir) == fs::directory_iterator(); }

// 9 MiB and a bit in two tensors: more than one part of the copy, none of them aligned with a piece.
fs::path large(const fs::path& dir, int64_t step) {
  std::vector<float> x(1'200'007);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 8191);
  return saves::tensors(dir, step,
                        {saves::values<float>("a", DType::f32, {static_cast<int64_t>(x.size())}, x),
                         saves::values<float>("b", DType::f32, {1, static_cast<int64_t>(x.size())}, x)});
}

}  // namespace

TEST_CASE("a copy is the same files, and verifies") {
  const ScratchDir dir;
  for (int ranks = 1; ranks <= 5; ++ranks) {
    const fs::path source = saves::made_up(dir / "from", ranks, ranks, static_cast<unsigned>(ranks), 3);
    int64_t told = 0, told_total = 0;
    const fs::path target = dir / "to/deep/er" / step_name(ranks);
    const CopyReport report =
        copy_checkpoint({.source = source,
                         .target = target,
                         .existing = Existing::refuse,
                         .progress = [&](int64_t done, int64_t total) { told = done, told_total = total; }});
    CHECK(report.step == ranks);
    CHECK(report.n_files == ranks);
    CHECK(told == report.bytes);
    CHECK(told == told_total);
    CHECK(saves::tree(source) == saves::tree(target));
    CHECK(Checkpoint(target).verify().empty());
    CHECK(list_checkpoints(dir / "to/deep/er").size() == static_cast<size_t>(ranks));
  }
  const fs::path source = large(dir / "from", 100), target = dir / "to/step-00000100";
  CHECK(copy_to(source, target).bytes ==
        static_cast<int64_t>(fs::file_size(source / "rank-00000.h5") + fs::file_size(source / "manifest.json")));
  CHECK(saves::tree(source) == saves::tree(target));
}

TEST_CASE("where a copy goes") {
  const ScratchDir dir;
  const fs::path source = saves::made_up(dir / "from", 7, 1, 1, 1), run = dir / "a run";
  fs::create_directories(run / "checkpoints");
  fs::create_directory(dir / "empty");
  std::ofstream(dir / "file") << "x";
  CHECK(copy_target(source, run) == run / "checkpoints/step-00000007");
  CHECK(copy_target(source, run / "checkpoints") == run / "checkpoints/step-00000007");
  CHECK(copy_target(source, dir / "empty/") == dir / "empty/step-00000007");
  CHECK(copy_target(source, dir / "new") == dir / "new/step-00000007");
  CHECK(copy_target(source, dir / "new/step-00000007/") == dir / "new/step-00000007");
  fs::create_directory_symlink(source, dir / "best");
  CHECK(copy_target(source, dir / "best") == dir / "best");
  CHECK_THROWS_WITH_AS(copy_target(source, dir / "new/step-00000008"),
                       doctest::Contains("expected the name of step 7, found that of step 8"), Error);
  CHECK_THROWS_AS(copy_target(source, dir / "file"), Error);
}

TEST_CASE("a damaged source is told and leaves nothing behind") {
  const ScratchDir dir;
  const fs::path source = saves::made_up(dir / "from", 7, 2, 5, 3), manifest = source / "manifest.json";
  const auto intact = saves::tree(source);
  const auto restore = [&] {
    fs::remove_all(source);
    saves::made_up(dir / "from", 7, 2, 5, 3);
    for (const auto& [name, content] : intact) std::ofstream(source / name, std::ios::binary) << content;
  };
  const auto check_refused = [&](const std::string& what) {
    const Failure f = failure(source, dir / "to/deep/step-00000007");
    INFO(f.text);
    CHECK(f.kind == ErrorKind::verdict);
    CHECK(saves::has(f.text, what));
    CHECK_FALSE(fs::exists(dir / "to"));
  };
  const Checkpoint checkpoint(source);
  for (const TensorInfo& t : checkpoint.tensors()) {
    for (const StoredPiece& piece : checkpoint.pieces(t.name)) {
      saves::flip(source / piece.file, piece.at + piece.box.size() * dtype_bytes(t.dtype) - 1);
      check_refused("tensor " + t.name + " " + box_text(piece.box));
      saves::flip(source / piece.file, piece.at + piece.box.size() * dtype_bytes(t.dtype) - 1);
    }
  }
  REQUIRE(saves::tree(source) == intact);
  saves::flip(source / "rank-00001.h5", 9);
  check_refused("rank-00001.h5: outside the tensors");
  saves::flip(source / "rank-00000.h5", 9);
  check_refused("rank-00000.h5: outside the tensors");  // both faults are listed
  check_refused("rank-00001.h5: outside the tensors");
  restore();
  fs::resize_file(source / "rank-00001.h5", fs::file_size(source / "rank-00001.h5") - 1);
  check_refused("rank-00001.h5: expected ");
  fs::remove(source / "rank-00001.h5");
  check_refused("no such file");
  restore();
  saves::flip(manifest, 30);
  check_refused("manifest.json");
  fs::remove(manifest);
  check_refused("manifest.json");
}

TEST_CASE("what is there is replaced on demand only, and stays when the copy fails") {
  const ScratchDir dir;
  const fs::path source = saves::made_up(dir / "from", 7, 2, 5, 3), target = dir / "to/step-00000007";
  saves::made_up(dir / "to", 7, 3, 6, 4);
  const auto old = saves::tree(target);
  CHECK(failure(source, target).kind == ErrorKind::usage);
  CHECK(saves::has(failure(source, target).text, "--force"));
  CHECK(failure(source, target, Existing::replace_leftover).kind == ErrorKind::usage);
  CHECK(saves::tree(target) == old);

  saves::flip(source / "rank-00001.h5", 9);
  CHECK(failure(source, target, Existing::replace).kind == ErrorKind::verdict);
  CHECK(saves::tree(target) == old);
  CHECK_FALSE(fs::exists(dir / "to/step-00000007.tmp"));
  saves::flip(source / "rank-00001.h5", 9);
  copy_to(source, target, Existing::replace);
  CHECK(saves::tree(target) == saves::tree(source));

  CHECK(failure(source, source, Existing::replace).kind == ErrorKind::usage);
  fs::create_directory_symlink(source, dir / "link");
  CHECK(failure(source, dir / "link", Existing::replace).kind == ErrorKind::usage);
  CHECK(Checkpoint(source).verify().empty());

  // What an interrupted save left.
  const fs::path other = dir / "other/step-00000007", tmp = dir / "other/step-00000007.tmp";
  fs::create_directories(tmp);
  std::ofstream(tmp / "rank-00009.h5") << "x";
  CHECK(saves::has(failure(source, other).text, tmp.string()));
  CHECK(fs::exists(tmp / "rank-00009.h5"));
  copy_to(source, other, Existing::replace_leftover);
  CHECK(saves::tree(other) == saves::tree(source));
  CHECK_FALSE(fs::exists(tmp));
}

TEST_CASE("a full disk names the path and leaves nothing behind") {
  const ScratchDir dir;
  const fs::path source = large(dir / "from", 7);
  bool mounted = false;
  // The mount lives in this thread's own mount namespace and ends with it.
  std::thread([&] {
    fs::create_directory(dir / "small");
    mounted = ::unshare(CLONE_NEWNS) == 0 && ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
              ::mount("tmpfs", (dir / "small").c_str(), "tmpfs", 0, "size=3m") == 0;
    if (!mounted) return;
    const Failure f = failure(source, dir / "small/to/step-00000007");
    INFO(f.text);
    CHECK(f.kind == ErrorKind::runtime);
    CHECK(saves::has(f.text, "small/to/step-00000007.tmp/rank-00000.h5"));
    CHECK(saves::has(f.text, "No space left on device"));
    CHECK(holds_nothing(dir / "small"));
  }).join();
  if (!mounted) MESSAGE("not allowed to mount a small file system: the file size limit below stands for it");

  rlimit before;
  ::getrlimit(RLIMIT_FSIZE, &before);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{5'000'000, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &limit);
  const Failure f = failure(source, dir / "to/step-00000007");
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old_handler);
  CHECK(f.kind == ErrorKind::runtime);
  CHECK(saves::has(f.text, "rank-00000.h5"));
  CHECK(saves::has(f.text, "File too large"));
  CHECK_FALSE(fs::exists(dir / "to"));

  std::ofstream(dir / "file") << "x";
  CHECK(failure(source, dir / "file/step-00000007").kind == ErrorKind::runtime);
}

TEST_CASE("a copy that is killed at any moment is whole or not there") {
  const ScratchDir dir;
  const fs::path source = large(dir / "from", 7);
  saves::KilledProcess killed(23);
  int whole_ones = 0;
  for (int round = 0; round < 40; ++round) {
    const fs::path target = dir / "to/step-00000007";
    killed.run([&] { copy_to(source, target, Existing::replace); });
    if (fs::exists(target)) {
      REQUIRE(Checkpoint(target).verify().empty());
      ++whole_ones;
      if (round % 2 == 0) fs::remove_all(target);
    }
  }
  MESSAGE(whole_ones, " times of 40 there was a whole copy, otherwise none");
  copy_to(source, dir / "to/step-00000007", Existing::replace);
  CHECK(saves::tree(dir / "to/step-00000007") == saves::tree(source));
}
