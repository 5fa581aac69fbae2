// Damage anywhere in a checkpoint's files is found and placed.
#include "libcore/ckpt/file_digests.h"

#include <doctest/doctest.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <map>
#include <random>

#include "libcore/base/files.h"
#include "libcore/base/hash.h"
#include "libcore/ckpt/shard_digests.h"
#include "libcore/ckpt/shard_file.h"
#include "tests/ckpt/layouts.h"
#include "tests/ckpt/scratch_dir.h"

using namespace rw;
namespace fs = std::filesystem;

namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// A checkpoint of some ranks, written to `dir`.
Manifest write_files(const fs::path& dir, int ranks, unsigned seed) {
  const std::vector<layouts::Share> shares = layouts::spread(ranks, seed, 3);
  std::vector<ShardRecord> records;
  for (int r = 0; r < ranks; ++r) {
    records.push_back(
        write_shard_file(dir / ("rank-0000" + std::to_string(r) + ".h5"), shares[static_cast<size_t>(r)].pieces));
  }
  return join_shards(records);
}

std::vector<std::string> faults_in(const Manifest& manifest, const fs::path& dir, int threads = 1) {
  return file_faults(expected_files(manifest, dir), threads, nullptr);
}

void flip(const fs::path& file, int64_t at) {
  std::fstream f(file, std::ios::in | std::ios::out | std::ios::binary);
  f.seekg(at);
  const int c = f.get();
  f.seekp(at);
  f.put(static_cast<char>(c ^ 1));
}

}  // namespace

TEST_CASE("digests of pieces and rest in one pass, whatever the parts it comes in") {
  std::mt19937 random(5);
  for (int round = 0; round < 60; ++round) {
    std::string bytes(1 + random() % 5000, ' ');
    for (char& c : bytes) c = static_cast<char>(random());
    const auto size = static_cast<int64_t>(bytes.size());
    std::vector<ByteRange> pieces;
    std::vector<bool> covered(bytes.size(), false);
    for (size_t i = random() % 12; i > 0; --i) {  // may overlap, may be empty
      const int64_t begin = static_cast<int64_t>(random()) % (size + 1);
      const int64_t end = begin + static_cast<int64_t>(random()) % (size - begin + 1);
      pieces.push_back({begin, end});
      std::fill(covered.begin() + begin, covered.begin() + end, true);
    }
    ShardDigests digests(pieces, size);
    for (int64_t at = 0; at < size;) {
      const int64_t n = std::min<int64_t>(size - at, static_cast<int64_t>(random()) % 1500);
      digests.update(bytes.data() + at, n);
      at += n;
    }
    for (size_t i = 0; i < pieces.size(); ++i) {
      CHECK(digests.piece(i) == hash64(bytes.data() + pieces[i].begin, pieces[i].end - pieces[i].begin));
    }
    std::string rest;
    for (size_t i = 0; i < bytes.size(); ++i) {
      if (!covered[i]) rest.push_back(bytes[i]);
    }
    CHECK(digests.rest() == hash64(rest));
  }
}

TEST_CASE("intact files have no faults, and every byte is read once") {
  for (const int ranks : {1, 2, 5}) {
    const ScratchDir dir;
    const Manifest manifest = write_files(dir.path(), ranks, 4);
    int64_t bytes = 0;
    for (const FileRecord& f : manifest.files) bytes += f.bytes;
    for (const int threads : {1, 2, 8}) {
      std::atomic<int64_t> read = 0;
      const std::vector<ExpectedFile> files = expected_files(manifest, dir.path());
      CHECK(files.size() == static_cast<size_t>(ranks));
      CHECK(file_faults(files, threads, [&](int64_t n) { read += n; }).empty());
      CHECK(read == bytes);
    }
    CHECK(file_faults({}, 2, nullptr).empty());
  }
}

TEST_CASE("a flipped bit anywhere is one fault that names its piece") {
  const ScratchDir dir;
  const Manifest manifest = write_files(dir.path(), 3, 8);
  std::mt19937 random(9);
  for (int round = 0; round < 200; ++round) {
    const auto f = static_cast<int64_t>(random() % 3);
    const FileRecord& record = manifest.files[static_cast<size_t>(f)];
    int64_t at = static_cast<int64_t>(random()) % record.bytes;
    if (round % 2 == 0) at = at / 4096 * 4096 + static_cast<int64_t>(random() % 16);  // small pieces, structures
    at = std::min(at, record.bytes - 1);
    const fs::path file = dir / record.name;
    flip(file, at);
    const std::vector<std::string> faults = faults_in(manifest, dir.path(), 1 + round % 3);
    flip(file, at);
    CAPTURE(at);
    REQUIRE(faults.size() == 1);
    CHECK(has(faults[0], file.string() + ": "));
    std::string where =
        ": outside the tensors (HDF5 structures, padding): expected digest " + hex64(record.rest_digest) + ", found ";
    for (const TensorRecord& tensor : manifest.tensors) {
      for (const PieceRecord& p : tensor.pieces) {
        const int64_t end = p.at + p.box.size() * dtype_bytes(tensor.info.dtype);
        if (p.file != f || at < p.at || at >= end) continue;
        where = ": tensor " + tensor.info.name + " " + box_text(p.box) + " (bytes " + std::to_string(p.at) + " to " +
                std::to_string(end) + "): expected digest " + hex64(p.digest) + ", found ";
      }
    }
    CHECK(has(faults[0], where));
  }
  CHECK(faults_in(manifest, dir.path()).empty());
}

TEST_CASE("missing, cut, extended and unreadable files, in the manifest's order") {
  const ScratchDir dir;
  const Manifest manifest = write_files(dir.path(), 4, 2);
  const auto bytes = [&](size_t f) { return manifest.files[f].bytes; };
  fs::remove(dir / "rank-00000.h5");
  fs::resize_file(dir / "rank-00001.h5", static_cast<uintmax_t>(bytes(1) - 1));
  fs::resize_file(dir / "rank-00002.h5", static_cast<uintmax_t>(bytes(2) + 1));
  fs::remove(dir / "rank-00003.h5");
  fs::create_directory(dir / "rank-00003.h5");
  for (const int threads : {1, 3}) {
    const std::vector<std::string> faults = faults_in(manifest, dir.path(), threads);
    REQUIRE(faults.size() == 4);
    CHECK(faults[0] == (dir / "rank-00000.h5").string() + ": listed in manifest.json with " + std::to_string(bytes(0)) +
                           " bytes, found no such file");
    CHECK(faults[1] == (dir / "rank-00001.h5").string() + ": expected " + std::to_string(bytes(1)) +
                           " bytes (key 'files' of manifest.json), found " + std::to_string(bytes(1) - 1) +
                           ": it was cut");
    CHECK(has(faults[2], "found " + std::to_string(bytes(2) + 1) + ": it was extended"));
    CHECK(has(faults[3], (dir / "rank-00003.h5").string() + ": "));
  }
}

TEST_CASE("content that moved to another place or another file is damage") {
  const ScratchDir dir;
  const Manifest manifest = write_files(dir.path(), 2, 6);
  // A stale file of the same size: other weights, another salt.
  const std::vector<layouts::Share> other = layouts::spread(2, 6, 4);
  write_shard_file(dir / "rank-00001.h5", other[1].pieces);
  REQUIRE(static_cast<int64_t>(fs::file_size(dir / "rank-00001.h5")) == manifest.files[1].bytes);
  size_t pieces = 0;
  for (const TensorRecord& t : manifest.tensors) {
    for (const PieceRecord& p : t.pieces) pieces += p.file == 1;
  }
  const std::vector<std::string> faults = faults_in(manifest, dir.path(), 2);
  CHECK(pieces > 0);
  CHECK(faults.size() == pieces);
  for (const std::string& fault : faults) CHECK(has(fault, "rank-00001.h5: tensor "));
}
