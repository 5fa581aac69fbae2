// The background writer of a rank's file: what HDF5 reads back is what the pieces held when staging was finished.
#include "libcore/ckpt/shard_saver.h"

#include <doctest/doctest.h>
#include <hdf5.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <thread>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/hash.h"
#include "libcore/ckpt/shard_file.h"
#include "tests/ckpt/layouts.h"
#include "tests/ckpt/scratch_dir.h"

using namespace rw;
namespace fs = std::filesystem;

namespace {

using Cache = ShardSaver::Cache;
// Threads of a team; the thread sanitizer cannot see through the OpenMP library.
#ifdef __SANITIZE_THREAD__
int team() { return 1; }
#else
int team() { return 3; }
#endif
constexpr double kLong = 120;  // seconds: an end to a hanging test, not a measure

// Pieces of any bytes, with their memory.
struct Pieces {
  std::vector<std::vector<char>> storage;
  std::vector<TensorPiece> list;

  void add(const std::string& name, DType t, const Shape& shape, const Box& box) {
    storage.emplace_back(static_cast<size_t>(box.size() * dtype_bytes(t)));
    list.push_back({name, t, shape, box, storage.back().data()});
  }
  void fill(unsigned seed) {
    std::mt19937_64 random(seed);
    for (std::vector<char>& bytes : storage) {
      for (char& c : bytes) c = static_cast<char>(random());
    }
  }
};

// Of odd sizes, from a byte to megabytes, some empty, some tensors in several boxes, in a random order.
Pieces random_pieces(unsigned seed, int n, int64_t max_rows) {
  std::mt19937 random(seed);
  const DType types[] = {DType::f32, DType::bf16, DType::i64, DType::u8, DType::f16};
  Pieces made;
  for (int i = 0; i < n; ++i) {
    const Shape shape = random() % 9 == 0 ? Shape{}
                                          : Shape{1 + static_cast<int64_t>(random()) % max_rows,
                                                  1 + static_cast<int64_t>(random() % 97)};
    const DType t = types[random() % 5];
    const std::string name = (random() % 2 == 0 ? "group/" : "") + std::string("t") + std::to_string(i);
    std::vector<Box> boxes = layouts::cut(shape, 1 + static_cast<int>(random() % 3), random);
    for (const Box& box : boxes) {
      if (random() % 8 != 0) made.add(name, t, shape, box);  // another rank has the others
    }
  }
  made.fill(seed);
  return made;
}

std::vector<char> hdf5_bytes(hid_t file, const std::string& name) {
  const hid_t dataset = H5Dopen2(file, name.c_str(), H5P_DEFAULT);
  REQUIRE(dataset >= 0);
  const hid_t type = H5Dget_type(dataset), space = H5Dget_space(dataset);
  std::vector<char> bytes(static_cast<size_t>(H5Sget_simple_extent_npoints(space)) * H5Tget_size(type));
  CHECK(H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes.data()) >= 0);
  H5Sclose(space);
  H5Tclose(type);
  H5Dclose(dataset);
  return bytes;
}

// The HDF5 library finds exactly these pieces in the file, the record says where their bytes lie, every digest is that
// of the bytes, and what lies outside the pieces is what the record says.
void check_file(const fs::path& path, const ShardRecord& record, const Pieces& pieces) {
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  REQUIRE(file >= 0);
  const std::string raw = read_file(path);
  CHECK(record.file.name == path.filename().string());
  REQUIRE(record.file.bytes == static_cast<int64_t>(raw.size()));
  std::map<std::string, size_t> seen;
  std::string rest = raw;
  std::vector<char> is_piece(raw.size(), 0);
  size_t n_tensors = 0;
  for (size_t i = 0; i < pieces.list.size(); ++i) {
    const TensorPiece& piece = pieces.list[i];
    const auto tensor = std::find_if(record.tensors.begin(), record.tensors.end(),
                                     [&](const TensorRecord& t) { return t.info.name == piece.name; });
    REQUIRE(tensor != record.tensors.end());
    CHECK(tensor->info.shape == piece.shape);
    CHECK(tensor->info.dtype == piece.dtype);
    if (piece.box.size() == 0) {
      n_tensors += seen.try_emplace(piece.name, 0).second;
      continue;
    }
    const auto [times, is_new] = seen.try_emplace(piece.name, 0);
    n_tensors += is_new;
    const size_t k = times->second++;
    const std::vector<char>& bytes = pieces.storage[i];
    REQUIRE(hdf5_bytes(file, k == 0 ? piece.name : piece.name + "#" + std::to_string(k)) == bytes);
    REQUIRE(k < tensor->pieces.size());
    const PieceRecord& found = tensor->pieces[k];
    CHECK(found.box == piece.box);
    CHECK(found.at % 4096 == 0);
    CHECK(found.digest == hash64(bytes.data(), static_cast<int64_t>(bytes.size())));
    REQUIRE(std::memcmp(raw.data() + found.at, bytes.data(), bytes.size()) == 0);
    std::fill_n(is_piece.begin() + found.at, bytes.size(), 1);
  }
  CHECK(record.tensors.size() == n_tensors);
  for (const auto& [name, times] : seen) {
    const auto tensor = std::find_if(record.tensors.begin(), record.tensors.end(),
                                     [&](const TensorRecord& t) { return t.info.name == name; });
    CHECK(tensor->pieces.size() == times);
  }
  rest.clear();
  for (size_t at = 0; at < raw.size(); ++at) {
    if (!is_piece[at]) rest.push_back(raw[at]);
  }
  CHECK(record.file.rest_digest == hash64(rest));
  H5Fclose(file);
}

ShardRecord save(ShardSaver& saver, const Pieces& pieces, const fs::path& file, Cache cache = Cache::bypass) {
  saver.begin(pieces.list, file, cache);
  saver.finish_staging();
  REQUIRE(saver.wait(kLong));
  CHECK(saver.state() == SaveState::written);
  return saver.take();
}

// Fails; returns the message. The saver is idle again.
std::string save_error(ShardSaver& saver, const Pieces& pieces, const fs::path& file) {
  saver.begin(pieces.list, file, Cache::bypass);
  saver.finish_staging();
  REQUIRE(saver.wait(kLong));
  CHECK(saver.state() == SaveState::failed);
  try {
    saver.take();
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::runtime);
    CHECK(saver.state() == SaveState::idle);
    return e.what();
  }
  return "";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("any pieces, through pools of any size") {
  const ScratchDir dir;
  for (const int64_t memory : {int64_t{0}, int64_t{1}, int64_t{300'001}, int64_t{1'000'003}, int64_t{64} << 20}) {
    for (const int threads : {1, team()}) {
      ShardSaver saver({.memory_bytes = memory, .threads = threads});
      for (unsigned seed = 0; seed < 6; ++seed) {
        const Pieces pieces = random_pieces(seed, 1 + static_cast<int>(seed) * 7, seed % 2 == 0 ? 40 : 7000);
        CAPTURE(memory);
        CAPTURE(seed);
        const fs::path file = dir / ("rank-" + std::to_string(seed) + ".h5");
        const Cache cache = seed % 3 == 0 ? Cache::keep : Cache::bypass;
        check_file(file, save(saver, pieces, file, cache), pieces);
        CHECK(saver.times().bytes == static_cast<int64_t>(fs::file_size(file)));
        if (memory == 300'001) CHECK(saver.pool_bytes() <= 300'001);
        if (memory == 1) CHECK(saver.pool_bytes() <= 256 << 10);
      }
    }
  }
}

// What lies on a device has addresses that mean nothing to the host.
TEST_CASE("pieces that are not in the host's memory are read by the function that is given") {
  const ScratchDir dir;
  constexpr uintptr_t kFar = uintptr_t{1} << 46;
  const Pieces pieces = random_pieces(6, 15, 4000);
  std::vector<TensorPiece> far = pieces.list;
  for (TensorPiece& p : far) p.data = reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(p.data) + kFar);
  std::atomic<bool> works = true;
  const CopyPiece copy = [&](char* dst, const char* src, int64_t bytes) {
    if (!works) fail(ErrorKind::runtime, "the device is gone");
    std::memcpy(dst, reinterpret_cast<const char*>(reinterpret_cast<uintptr_t>(src) - kFar),
                static_cast<size_t>(bytes));
  };
  for (const int threads : {1, team()}) {
    ShardSaver saver({.memory_bytes = 300'000, .threads = threads, .copy = copy});
    const auto begin = [&] { saver.begin(far, dir / "a.h5", Cache::bypass); };
    begin();
    saver.finish_staging();
    REQUIRE(saver.wait(kLong));
    check_file(dir / "a.h5", saver.take(), pieces);
    works = false;
    begin();
    saver.finish_staging();
    REQUIRE(saver.wait(kLong));
    CHECK_THROWS_WITH_AS(saver.take(), doctest::Contains("the device is gone"), Error);
    works = true;
  }
}

TEST_CASE("the saver's own thread stages without the caller") {
  const ScratchDir dir;
  const Pieces pieces = random_pieces(5, 20, 3000);
  ShardSaver saver({.memory_bytes = 500'000});
  saver.begin(pieces.list, dir / "a.h5", Cache::bypass);
  REQUIRE(saver.wait(kLong));
  saver.finish_staging();  // nothing is left for it
  check_file(dir / "a.h5", saver.take(), pieces);
  CHECK(saver.state() == SaveState::idle);
}

TEST_CASE("the file holds a private copy: pieces may change once staging is finished") {
  const ScratchDir dir;
  Pieces pieces = random_pieces(7, 25, 5000);
  for (const int64_t memory : {int64_t{0}, int64_t{400'000}}) {
    // So slow that nearly all of the writing comes after the change, if the pool lets it.
    ShardSaver saver({.memory_bytes = memory, .bytes_per_s = 3e7, .threads = team()});
    const Pieces before = pieces;
    saver.begin(pieces.list, dir / "a.h5", Cache::bypass);
    saver.finish_staging();
    pieces.fill(99);
    REQUIRE(saver.wait(kLong));
    check_file(dir / "a.h5", saver.take(), before);
  }
}

TEST_CASE("no thread reads a piece after staging is finished") {
  const ScratchDir dir;
  const int64_t bytes = (int64_t{5} << 20) + 13;
  for (const int threads : {1, team()}) {
    ShardSaver saver({.threads = threads});
    for (int round = 0; round < 25; ++round) {
      Pieces pieces;
      pieces.add("w", DType::u8, {bytes}, whole({bytes}));
      std::vector<char>& w = pieces.storage[0];
      std::fill(w.begin(), w.end(), static_cast<char>(round));
      const uint64_t expected = hash64(w.data(), bytes);
      saver.begin(pieces.list, dir / "a.h5", Cache::bypass);
      saver.finish_staging();
      std::fill(w.rbegin(), w.rend(), 'x');  // from the end, where a straggler would be
      REQUIRE(saver.wait(kLong));
      REQUIRE(saver.take().tensors[0].pieces[0].digest == expected);
    }
  }
}

TEST_CASE("a saver used again writes what the pieces hold now") {
  const ScratchDir dir;
  Pieces pieces = random_pieces(11, 20, 3000);
  ShardSaver saver({.threads = team()});
  std::map<std::string, uint64_t> seen;
  int64_t pool = 0;
  for (unsigned round = 0; round < 5; ++round) {
    pieces.fill(round);
    const fs::path file = dir / ("step-" + std::to_string(round) + ".h5");
    check_file(file, save(saver, pieces, file), pieces);
    CHECK(seen.try_emplace(read_file(file), round).second);
    CHECK((pool == 0 || saver.pool_bytes() == pool));
    pool = saver.pool_bytes();
  }
  // The same boxes at other addresses.
  Pieces moved;
  for (const TensorPiece& p : pieces.list) moved.add(p.name, p.dtype, p.shape, p.box);
  moved.fill(77);
  check_file(dir / "moved.h5", save(saver, moved, dir / "moved.h5"), moved);
  // Other boxes of the same size, boxes of another size, another dtype, none at all, more than the pool has held.
  for (const int64_t rows : {5, 3}) {
    for (const int64_t first : {0, 2, 4}) {
      Pieces boxes;
      boxes.add("w", DType::f32, {9, 301}, {{first, 0}, {rows, 301}});
      boxes.fill(static_cast<unsigned>(first));
      check_file(dir / "boxes.h5", save(saver, boxes, dir / "boxes.h5"), boxes);
    }
  }
  Pieces typed;
  for (const TensorPiece& p : pieces.list)
    typed.add(p.name, p.dtype == DType::f32 ? DType::i32 : p.dtype, p.shape, p.box);
  typed.fill(4);
  check_file(dir / "typed.h5", save(saver, typed, dir / "typed.h5"), typed);
  check_file(dir / "none.h5", save(saver, {}, dir / "none.h5"), {});
  Pieces empty;
  empty.add("w", DType::f32, {7, 3}, {{7, 0}, {0, 3}});
  check_file(dir / "empty.h5", save(saver, empty, dir / "empty.h5"), empty);
  const Pieces large = random_pieces(13, 60, 9000);
  check_file(dir / "large.h5", save(saver, large, dir / "large.h5"), large);
  // In place of a longer file.
  check_file(dir / "large.h5", save(saver, empty, dir / "large.h5"), empty);
}

TEST_CASE("a prepared saver holds its memory and does not read the pieces") {
  const ScratchDir dir;
  Pieces pieces = random_pieces(29, 20, 3000);
  for (const int64_t memory : {int64_t{0}, int64_t{400'000}}) {
    ShardSaver saver({.memory_bytes = memory});
    std::vector<TensorPiece> unread = pieces.list;
    for (TensorPiece& p : unread) p.data = nullptr;
    saver.prepare(unread);
    check_file(dir / "a.h5", save(saver, pieces, dir / "a.h5"), pieces);
    const int64_t pool = saver.pool_bytes();
    CHECK(pool > 0);
    saver.prepare(unread);
    saver.prepare(random_pieces(30, 3, 100).list);  // not what will be saved
    pieces.fill(31);
    check_file(dir / "b.h5", save(saver, pieces, dir / "b.h5"), pieces);
    CHECK(saver.pool_bytes() == pool);
    saver.prepare(unread);  // destroyed while it prepares
  }
}

TEST_CASE("write_shard_file is the same file") {
  const ScratchDir dir;
  const Pieces pieces = random_pieces(17, 30, 4000);
  check_file(dir / "a.h5", write_shard_file(dir / "a.h5", pieces.list), pieces);
  ShardSaver saver({.memory_bytes = 300'000});
  save(saver, pieces, dir / "b.h5");
  CHECK(read_file(dir / "a.h5") == read_file(dir / "b.h5"));
}

TEST_CASE("many savers at once") {
  const ScratchDir dir;
  std::vector<std::thread> ranks;
  for (unsigned rank = 0; rank < 4; ++rank) {
    ranks.emplace_back([&, rank] {
      ShardSaver saver({.memory_bytes = 200'000 * (rank % 2)});
      Pieces pieces = random_pieces(rank, 12, 2000);
      for (unsigned round = 0; round < 4; ++round) {
        pieces.fill(round);
        const fs::path file = dir / (std::to_string(rank) + ".h5");
        saver.begin(pieces.list, file, Cache::bypass);
        saver.finish_staging();
        while (!saver.wait(kLong)) {
        }
        const ShardRecord record = saver.take();
        for (const TensorRecord& t : record.tensors) {
          for (const PieceRecord& p : t.pieces) {
            const std::string raw = read_file(file);
            const int64_t bytes = p.box.size() * dtype_bytes(t.info.dtype);
            if (hash64(raw.data() + p.at, bytes) != p.digest) std::abort();
          }
        }
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

TEST_CASE("failures name file, action and cause, and the saver lives on") {
  const ScratchDir dir;
  const Pieces pieces = random_pieces(19, 20, 4000);
  for (const int64_t memory : {int64_t{0}, int64_t{300'000}}) {
    ShardSaver saver({.memory_bytes = memory, .threads = team()});
    std::string error = save_error(saver, pieces, dir / "missing/rank-00000.h5");
    CHECK(has(error, (dir / "missing/rank-00000.h5").string() + ": creating it failed: No such file or directory"));
    std::ofstream(dir / "file") << "x";
    CHECK(has(save_error(saver, pieces, dir / "file/rank-00000.h5"), "Not a directory"));
    CHECK(has(save_error(saver, pieces, dir.path()), "Is a directory"));
    Pieces clash;  // a dataset and a group of one name
    clash.add("a", DType::f32, {3}, whole({3}));
    clash.add("a/b", DType::f32, {3}, whole({3}));
    CHECK(has(save_error(saver, clash, dir / "a.h5"), (dir / "a.h5").string() + ": HDF5: laying out a/b failed: "));
    CHECK(has(save_error(saver, pieces, "/dev/full"), "/dev/full: giving it its "));

    rlimit before;
    ::getrlimit(RLIMIT_FSIZE, &before);
    const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit small{600'000, before.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
    error = save_error(saver, pieces, dir / "a.h5");
    ::setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, old_handler);
    CHECK(has(error, (dir / "a.h5").string() + ": giving it its "));
    CHECK(has(error, "File too large"));

    check_file(dir / "a.h5", save(saver, pieces, dir / "a.h5"), pieces);
    // Its directory goes away under a save: the file is written nowhere, but nothing hangs.
    fs::create_directory(dir / "gone");
    saver.begin(pieces.list, dir / "gone/a.h5", Cache::bypass);
    std::error_code error_code;  // the file may be made just while the directory is emptied
    for (int tries = 0; fs::remove_all(dir / "gone", error_code), error_code && tries < 1000; ++tries) {
    }
    saver.finish_staging();
    REQUIRE(saver.wait(kLong));
    try {
      saver.take();
    } catch (const Error&) {
    }
    check_file(dir / "a.h5", save(saver, pieces, dir / "a.h5"), pieces);
  }
}

TEST_CASE("a paced save: waiting times out, and destruction does not wait for it") {
  const ScratchDir dir;
  const Pieces pieces = random_pieces(23, 20, 4000);
  for (const int64_t memory : {int64_t{0}, int64_t{262'144}}) {
    const auto start = std::chrono::steady_clock::now();
    {
      ShardSaver saver({.memory_bytes = memory, .bytes_per_s = 1});  // months
      saver.begin(pieces.list, dir / "a.h5", Cache::bypass);
      if (memory == 0) {
        // The whole image fits into the pool: staging does not wait for the disk.
        saver.finish_staging();
        CHECK_FALSE(saver.wait(0.7));
        CHECK(saver.state() == SaveState::writing);
      } else {
        CHECK_FALSE(saver.wait(0.7));
        CHECK(saver.state() == SaveState::staging);
      }
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    CHECK(took.count() < 60);  // not months
  }
  ShardSaver saver({.bytes_per_s = 1e12});
  CHECK_FALSE(saver.wait(kLong));  // nothing to wait for
  check_file(dir / "a.h5", save(saver, pieces, dir / "a.h5"), pieces);
}

TEST_CASE("pieces that contradict themselves are refused where the save begins") {
  const ScratchDir dir;
  ShardSaver saver({});
  Pieces bad;
  bad.add("w", DType::f32, {4, 4}, {{0, 0}, {4, 4}});
  bad.list[0].box.extent[1] = 5;
  CHECK_THROWS_AS(saver.begin(bad.list, dir / "a.h5", Cache::bypass), CheckFailed);
  Pieces twice;
  twice.add("w", DType::f32, {4}, whole({4}));
  twice.add("w", DType::f32, {5}, whole({5}));
  CHECK_THROWS_AS(saver.begin(twice.list, dir / "a.h5", Cache::bypass), CheckFailed);
  CHECK(saver.state() == SaveState::idle);
  const Pieces good = random_pieces(1, 5, 100);
  saver.begin(good.list, dir / "a.h5", Cache::bypass);
  CHECK_THROWS_AS(saver.begin(good.list, dir / "b.h5", Cache::bypass), CheckFailed);
  saver.finish_staging();
  REQUIRE(saver.wait(kLong));
  check_file(dir / "a.h5", saver.take(), good);
  CHECK_THROWS_AS(saver.take(), CheckFailed);
}
