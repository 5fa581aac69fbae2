// Resharding of a made-up model between random ways to spread it: the same values, from any number of processes, in
// little memory; and nothing at all from a damaged source.
#include "libcore/ckpt/reshard.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/ckpt/checkpoint.h"
#include "libcore/comm/agree.h"
#include "tests/ckpt/layouts.h"
#include "tests/ckpt/scratch_dir.h"

using namespace rw;
namespace fs = std::filesystem;

namespace {

constexpr size_t kSalt = 5;

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

void save_spread(const fs::path& dir, int64_t step, int ranks, unsigned seed) {
  const std::vector<layouts::Share> shares = layouts::spread(ranks, seed, kSalt);
  run_thread_ranks(ranks, [&](Comm& comm) {
    save_checkpoint(dir, step, shares[static_cast<size_t>(comm.rank())].pieces, Json{{"run_id", "r"}},
                    Json{{"step", step}, {"loss_scale", {{"scale", 1024.0}}}}, comm);
  });
}

NewCheckpoint target_of(const fs::path& dir, int64_t step, int ranks, unsigned seed) {
  NewCheckpoint target{
      .checkpoints_dir = dir, .step = step, .files = {}, .identity = R"({"run_id":"r"})", .state = R"({"step":3})"};
  for (const layouts::Share& share : layouts::spread(ranks, seed, kSalt)) {
    target.files.push_back(share.pieces);
    for (TensorPiece& piece : target.files.back()) piece.data = nullptr;
  }
  return target;
}

// Every tensor of a checkpoint against the values it was made from.
void check_values(const fs::path& dir) {
  const Checkpoint checkpoint(dir);
  CHECK(checkpoint.verify().empty());
  const std::vector<TensorInfo> tensors = layouts::model();
  REQUIRE(checkpoint.tensors().size() == tensors.size());
  for (size_t k = 0; k < tensors.size(); ++k) {
    const std::vector<char> expected = layouts::fill(tensors[k], whole(tensors[k].shape), kSalt + k);
    std::vector<char> found(expected.size());
    checkpoint.read(tensors[k].name, whole(tensors[k].shape), tensors[k].dtype, found.data());
    CHECK(found == expected);
  }
}

struct Failure {
  ErrorKind kind = ErrorKind::runtime;
  std::string text;
};
Failure failure_of(const fs::path& from, const NewCheckpoint& target, const ReshardOptions& options, int ranks = 1) {
  Failure failure;
  std::mutex mutex;
  int failed = 0;
  run_thread_ranks(ranks, [&](Comm& comm) {
    comm.set_timeout(60);
    try {
      const Checkpoint source(from);
      const auto rows = checkpoint_rows(from, source.manifest());
      reshard(*rows, target, options, comm);
    } catch (const SharedError& e) {
      const std::lock_guard lock(mutex);
      failure = {e.kind(), e.what()};
      ++failed;
    }
  });
  CHECK(failed == ranks);
  return failure;
}

void flip(const fs::path& file, int64_t at) {
  std::fstream f(file, std::ios::in | std::ios::out | std::ios::binary);
  f.seekg(at);
  const char was = static_cast<char>(f.get());
  f.seekp(at);
  f.put(static_cast<char>(was ^ 16));
}

}  // namespace

TEST_CASE("any spread from any spread, by several threads and processes, in little memory") {
  for (unsigned seed = 0; seed < 7; ++seed) {
    CAPTURE(seed);
    const ScratchDir dir;
    const int from = 1 + static_cast<int>(seed) % 4, to = seed == 6 ? 211 : 1 + static_cast<int>(seed * 5) % 7;
    save_spread(dir / "a", 3, from, seed);
    const NewCheckpoint target = target_of(dir / "b", 3, to, seed + 100);
    const int processes = 1 + static_cast<int>(seed) % 3;
    run_thread_ranks(processes, [&](Comm& comm) {
      comm.set_timeout(60);
      const Checkpoint source(dir / "a/step-00000003");
      const auto rows = checkpoint_rows(dir / "a/step-00000003", source.manifest());
      std::atomic<int64_t> told{0};
      const ReshardReport done = reshard(*rows, target,
                                         {.memory_bytes = seed % 2 == 0 && to < 200 ? 128 << 10 : 64 << 20,
                                          .threads = 1 + static_cast<int>(seed) % 3,
                                          .progress = [&](int64_t bytes) { told += bytes; }},
                                         comm);
      const int64_t all = comm.all_reduce_value(told.load(), ReduceOp::sum);
      if (done.bytes != source.bytes() || all != source.bytes())
        throw std::runtime_error("bytes: " + std::to_string(done.bytes) + ", " + std::to_string(all));
    });
    check_values(dir / "b/step-00000003");
    if (to > 200) {  // more files than are open at a time, to and from
      const Checkpoint source(dir / "b/step-00000003");
      const auto self = make_self_comm();
      reshard(*checkpoint_rows(dir / "b/step-00000003", source.manifest()), target_of(dir / "c", 3, 2, 1), {}, *self);
      check_values(dir / "c/step-00000003");
      continue;
    }
    // What the ranks of the new layout would have written themselves.
    save_spread(dir / "c", 3, to, seed + 100);
    const Manifest found = Checkpoint(dir / "b/step-00000003").manifest(),
                   expected = Checkpoint(dir / "c/step-00000003").manifest();
    REQUIRE(found.files.size() == expected.files.size());
    for (const FileRecord& file : expected.files)
      CHECK(read_file(dir / "b/step-00000003" / file.name) == read_file(dir / "c/step-00000003" / file.name));
    CHECK(std::distance(fs::directory_iterator(dir / "b"), fs::directory_iterator()) == 1);
  }
}

TEST_CASE("a damaged source leaves nothing, whatever byte it is") {
  const ScratchDir dir;
  save_spread(dir / "a", 3, 2, 9);
  const fs::path source = dir / "a/step-00000003", file = source / "rank-00001.h5";
  const auto bytes = static_cast<int64_t>(fs::file_size(file));
  save_spread(dir / "b", 3, 2, 10);  // an older one of the same step stays
  const NewCheckpoint target = target_of(dir / "b", 3, 3, 11);
  for (int64_t i = 0; i < 12; ++i) {
    const int64_t at = i == 0 ? 0 : i == 11 ? bytes - 1 : bytes * i / 11;
    CAPTURE(at);
    flip(file, at);
    const Failure failure = failure_of(source, target, {.memory_bytes = 1 << 20}, 1 + static_cast<int>(i) % 3);
    CHECK(failure.kind == ErrorKind::verdict);
    CHECK(has(failure.text, file.string() + ": damaged: "));
    flip(file, at);
    CHECK_FALSE(fs::exists(dir / "b/step-00000003.tmp"));
    check_values(dir / "b/step-00000003");
  }
  fs::resize_file(file, static_cast<uintmax_t>(bytes - 1));
  std::string error;
  try {
    checkpoint_rows(source, parse_manifest(read_file(source / "manifest.json"), "m"));
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::verdict);
    error = e.what();
  }
  CHECK(has(error, "expected " + std::to_string(bytes) + " bytes, found " + std::to_string(bytes - 1)));
}

TEST_CASE("memory for less than a row, and files that do not hold the model") {
  const ScratchDir dir;
  save_spread(dir / "a", 3, 2, 9);
  const fs::path source = dir / "a/step-00000003";
  const Failure small = failure_of(source, target_of(dir / "b", 3, 3, 11), {.memory_bytes = 4096}, 2);
  CHECK(small.kind == ErrorKind::usage);
  CHECK(has(small.text, "--memory 4.0 KiB is too small: a row of tensor "));
  CHECK_FALSE(fs::exists(dir / "b"));

  NewCheckpoint missing = target_of(dir / "b", 3, 3, 11);
  for (auto& file : missing.files) std::erase_if(file, [](const TensorPiece& p) { return p.name == "cube"; });
  CHECK(has(failure_of(source, missing, {}).text, "tensor cube has no place in the new layout"));
  NewCheckpoint more = target_of(dir / "b", 3, 3, 11);
  more.files[0].push_back({"other", DType::f32, {2}, whole({2}), nullptr});
  CHECK(has(failure_of(source, more, {}).text, "expected tensor other, found none of that name"));
  NewCheckpoint twice = target_of(dir / "b", 3, 3, 11);
  twice.files[1].push_back({"blocks.0.b", DType::bf16, {101}, whole({101}), nullptr});
  CHECK(has(failure_of(source, twice, {}, 2).text, "is written more than once"));
  CHECK(fs::is_empty(dir / "b"));

  // A directory that cannot be written.
  std::ofstream(dir / "file") << "x";
  const Failure failure = failure_of(source, target_of(dir / "file/b", 3, 3, 11), {}, 2);
  CHECK(failure.kind == ErrorKind::runtime);
  CHECK(has(failure.text, "file/b"));
}

TEST_CASE("rows of any source, converted") {
  const ScratchDir dir;
  save_spread(dir / "a", 3, 2, 9);
  const Checkpoint source(dir / "a/step-00000003");
  const auto rows = converted_rows(source, DType::f32);
  for (size_t k = 0; k < rows->tensors().size(); ++k) {
    const TensorInfo& t = rows->tensors()[k];
    CHECK(t.dtype == DType::f32);
    std::vector<float> expected(static_cast<size_t>(n_elements(t.shape)));
    source.read(t.name, whole(t.shape), DType::f32, expected.data());
    const auto reader = rows->open(k);
    std::vector<float> found;
    const int64_t step = 2, n = n_rows(t.shape);
    std::vector<char> buffer(static_cast<size_t>(reader->buffer_bytes(step)));
    for (int64_t first = 0; first < n && row_bytes(t) > 0; first += step) {
      const Band band{first, std::min(step, n - first)};
      for (const BandPart& part : reader->read(band, buffer.data())) {
        CHECK(part.box == band_box(t.shape, band));
        const auto* values = static_cast<const float*>(part.data);
        found.insert(found.end(), values, values + part.box.size());
      }
    }
    reader->finish();
    CHECK(found == expected);
  }
}
