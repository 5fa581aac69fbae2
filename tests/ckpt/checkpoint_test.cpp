#include "libcore/ckpt/checkpoint.h"

#include <doctest/doctest.h>
#include <hdf5.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "tests/ckpt/layouts.h"
#include "tests/ckpt/scratch_dir.h"

using namespace rw;
namespace fs = std::filesystem;

namespace {

const Json kIdentity = {{"run_id", "r-1"}, {"note", "caf\u00e9"}};
const Json kState = {{"step", 100}, {"loss_scale", 65536.0}, {"position", 9007199254740993}};

SaveReport save(const fs::path& dir, int64_t step, int ranks, unsigned seed, size_t salt) {
  const std::vector<layouts::Share> shares = layouts::spread(ranks, seed, salt);
  SaveReport report;
  run_thread_ranks(ranks, [&](Comm& comm) {
    const auto& pieces = shares[static_cast<size_t>(comm.rank())].pieces;
    const SaveReport r = save_checkpoint(dir, step, pieces, kIdentity, kState, comm);
    if (comm.rank() == 0) report = r;
  });
  return report;
}

// Reads random boxes of every tensor and compares with what was meant to be there.
void check_content(const TensorSource& source, unsigned seed, size_t salt) {
  std::mt19937 random(seed);
  const std::vector<TensorInfo> tensors = layouts::model();
  REQUIRE(source.tensors().size() == tensors.size());
  for (size_t k = 0; k < tensors.size(); ++k) {
    const TensorInfo& t = tensors[k];
    CHECK(source.tensors()[k].name == t.name);
    CHECK(source.tensors()[k].shape == t.shape);
    std::vector<Box> boxes = layouts::cut(t.shape, 6, random);
    boxes.push_back(whole(t.shape));
    for (const Box& box : boxes) {
      const std::vector<char> expected = layouts::fill(t, box, salt + k);
      std::vector<char> found(expected.size() + 1, 'c');
      source.read(t.name, box, t.dtype, found.data());
      CHECK(found.back() == 'c');
      found.pop_back();
      REQUIRE(found == expected);
      std::vector<float> as_f32(static_cast<size_t>(box.size()) + 1, -3.0f);
      source.read(t.name, box, DType::f32, as_f32.data());
      CHECK(as_f32.back() == -3.0f);
      const std::vector<char> f32 = layouts::fill({t.name, DType::f32, t.shape}, box, salt + k);
      if (!f32.empty()) REQUIRE(std::memcmp(as_f32.data(), f32.data(), f32.size()) == 0);
    }
  }
}

}  // namespace

TEST_CASE("any layout writes what any layout reads") {
  for (const int ranks : {1, 2, 3, 5}) {
    for (unsigned seed = 0; seed < 6; ++seed) {
      const ScratchDir dir;
      const SaveReport report = save(dir / "checkpoints", 100, ranks, seed, 1);
      const Checkpoint checkpoint(dir / "checkpoints/step-00000100");
      CHECK(checkpoint.step() == 100);
      CHECK(checkpoint.n_files() == ranks);
      CHECK(checkpoint.bytes() == report.bytes);
      CHECK(checkpoint.bytes() == 2 * 37 * 19 * 4 + 101 * 2 + 8 + 105 * 2 + 1031 * 129 * 4 + 4);
      CHECK(checkpoint.identity() == kIdentity);
      CHECK(checkpoint.state() == kState);
      CHECK(checkpoint.verify().empty());
      check_content(checkpoint, seed + 50, 1);
      CHECK_FALSE(fs::exists(dir / "checkpoints/step-00000100.tmp"));
    }
  }
}

TEST_CASE("a checkpoint read in one layout and saved in another is the same") {
  const ScratchDir dir;
  save(dir.path(), 1, 4, 3, 9);
  const Checkpoint first(dir / "step-00000001");
  std::vector<layouts::Share> shares = layouts::spread(3, 77, 0);
  for (layouts::Share& share : shares) {
    for (size_t i = 0; i < share.pieces.size(); ++i) {
      first.read(share.pieces[i].name, share.pieces[i].box, share.pieces[i].dtype, share.storage[i].data());
    }
  }
  run_thread_ranks(3, [&](Comm& comm) {
    save_checkpoint(dir.path(), 2, shares[static_cast<size_t>(comm.rank())].pieces, kIdentity, kState, comm);
  });
  check_content(Checkpoint(dir / "step-00000002"), 5, 9);
}

TEST_CASE("HDF5 itself reads a rank's file") {
  const ScratchDir dir;
  save(dir.path(), 7, 1, 0, 2);
  const std::vector<layouts::Share> shares = layouts::spread(1, 0, 2);
  const hid_t file = H5Fopen((dir / "step-00000007/rank-00000.h5").c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  REQUIRE(file >= 0);
  int compared = 0;
  for (const TensorPiece& piece : shares[0].pieces) {
    if (piece.box.size() == 0 || piece.name == "blocks.0.b" || piece.name == "cube") continue;
    for (int k = 0; k < 8; ++k) {  // pieces of one tensor: NAME, NAME#1, ...
      const std::string name = k == 0 ? piece.name : piece.name + "#" + std::to_string(k);
      if (H5Lexists(file, name.c_str(), H5P_DEFAULT) <= 0) break;
      const hid_t dataset = H5Dopen2(file, name.c_str(), H5P_DEFAULT);
      CHECK(H5Dget_offset(dataset) % 4096 == 0);
      Shape offset(piece.shape.size());
      if (!offset.empty()) {
        const hid_t attribute = H5Aopen(dataset, "offset", H5P_DEFAULT);
        H5Aread(attribute, H5T_NATIVE_INT64, offset.data());
        H5Aclose(attribute);
      }
      if (offset == piece.box.offset) {
        std::vector<char> found(static_cast<size_t>(piece.box.size() * dtype_bytes(piece.dtype)));
        const hid_t type = piece.dtype == DType::i64 ? H5T_NATIVE_INT64 : H5T_NATIVE_FLOAT;
        const hid_t space = H5Dget_space(dataset);
        if (H5Sget_simple_extent_npoints(space) == piece.box.size()) {
          REQUIRE(H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, found.data()) >= 0);
          CHECK(std::memcmp(found.data(), piece.data, found.size()) == 0);
          ++compared;
        }
        H5Sclose(space);
      }
      H5Dclose(dataset);
    }
  }
  CHECK(compared >= 6);
  // f16 and bf16 are described well enough for HDF5 to convert them.
  for (const char* name : {"cube", "blocks.0.b"}) {
    const hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT);
    REQUIRE(dataset >= 0);
    std::vector<float> found(1024);
    REQUIRE(H5Dread(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, found.data()) >= 0);
    const auto piece = std::find_if(shares[0].pieces.begin(), shares[0].pieces.end(),
                                    [&](const TensorPiece& p) { return p.name == name && p.box.size() > 0; });
    const size_t k = std::string(name) == "cube" ? 4 : 1;
    const std::vector<char> expected = layouts::fill({name, DType::f32, piece->shape}, piece->box, 2 + k);
    CHECK(std::memcmp(found.data(), expected.data(), expected.size()) == 0);
    H5Dclose(dataset);
  }
  H5Fclose(file);
}

TEST_CASE("verify finds one changed byte wherever it lies") {
  const ScratchDir dir;
  save(dir.path(), 1, 2, 4, 3);
  std::mt19937 random(5);
  for (int i = 0; i < 200; ++i) {
    const fs::path file = dir.path() / "step-00000001" / ("rank-0000" + std::to_string(i % 2) + ".h5");
    const auto at = static_cast<std::streamoff>(random() % fs::file_size(file));
    std::fstream f(file, std::ios::in | std::ios::out | std::ios::binary);
    f.seekg(at);
    const char was = static_cast<char>(f.get());
    f.seekp(at);
    f.put(static_cast<char>(was ^ (1 << (i % 8))));
    f.flush();
    const std::vector<std::string> faults = Checkpoint(dir / "step-00000001").verify();
    REQUIRE(faults.size() == 1);
    CHECK(faults[0].find(file.filename().string()) != std::string::npos);
    f.seekp(at);
    f.put(was);
  }
  CHECK(Checkpoint(dir / "step-00000001").verify().empty());
}

TEST_CASE("a step saved again is replaced; leftovers are ignored, named and removed by the next save") {
  const ScratchDir dir;
  save(dir.path(), 3, 2, 1, 1);
  save(dir.path(), 3, 3, 2, 2);
  check_content(Checkpoint(dir / "step-00000003"), 1, 2);

  fs::create_directory(dir / "step-00000009.tmp");
  fs::create_directory(dir / "step-00000010");
  fs::create_directory(dir / "unrelated");
  std::vector<std::string> ignored;
  const std::vector<CheckpointEntry> list = list_checkpoints(dir.path(), &ignored);
  REQUIRE(list.size() == 1);
  CHECK(list[0].step == 3);
  REQUIRE(ignored.size() == 2);
  CHECK(ignored[1].find("step-00000009.tmp") != std::string::npos);
  CHECK(ignored[0].find("manifest.json") != std::string::npos);

  // A successor that was moving in when the machine stopped: the old one still counts, then comes back.
  fs::rename(dir / "step-00000003", dir / "step-00000003.replaced");
  CHECK(list_checkpoints(dir.path()).size() == 1);
  save(dir.path(), 11, 1, 1, 1);
  CHECK_FALSE(fs::exists(dir / "step-00000009.tmp"));
  check_content(Checkpoint(dir / "step-00000003"), 1, 2);
  CHECK(list_checkpoints(dir / "missing").empty());
}

TEST_CASE("pruning keeps the newest and every so many") {
  const ScratchDir dir;
  for (const int64_t step : {10, 20, 25, 30, 40, 100000000}) save(dir.path(), step, 1, 0, 1);
  fs::remove(dir / "step-100000000" / "rank-00000.h5");  // incomplete: neither counted nor removed
  prune_checkpoints(dir.path(), 0, 0);
  CHECK(list_checkpoints(dir.path()).size() == 5);
  prune_checkpoints(dir.path(), 2, 20);
  std::vector<int64_t> steps;
  for (const CheckpointEntry& e : list_checkpoints(dir.path())) steps.push_back(e.step);
  CHECK(steps == std::vector<int64_t>{20, 30, 40});
  CHECK(fs::exists(dir / "step-100000000"));
  prune_checkpoints(dir.path(), 1, 0);
  CHECK(list_checkpoints(dir.path()).size() == 1);
  CHECK(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()) == 2);
}
