// What a checkpoint costs: the wait for staging beside a plain memcpy of the same bytes, writing beside dd onto the
// same disk, verifying beside dd from it. One JSON object; rates in GB/s, medians of interleaved repetitions.
//   checkpoint_bench DIR [MIB [THREADS [REPS [CEILING_MB_PER_S]]]]
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/base/json.h"
#include "libcore/base/page_pool.h"
#include "libcore/ckpt/file_digests.h"
#include "libcore/ckpt/shard_saver.h"

namespace rw {
namespace {

namespace fs = std::filesystem;

struct Bench {
  fs::path dir;
  int64_t mib, threads, reps;
  double ceiling;  // bytes/s
};

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v.empty() ? 0 : v[v.size() / 2];
}

// Tensors like a transformer's, matrices and vectors, over contiguous memory.
struct Tensors {
  PagePool memory;
  std::vector<TensorPiece> pieces;

  explicit Tensors(int64_t bytes) {
    memory.need(bytes);
    for (int64_t i = 0; i < bytes; ++i)
      memory.data()[i] = static_cast<char>(static_cast<uint64_t>(i) * 2654435761 >> 13);
    const Shape shapes[] = {{768, 2304}, {768}, {768, 768}, {3072, 768}, {768}, {768, 3072}};
    for (int64_t at = 0, i = 0; at < bytes; ++i) {
      Shape shape = shapes[i % 6];
      if (n_elements(shape) * 4 > bytes - at) shape = {(bytes - at) / 4};
      pieces.push_back(
          {fmt::format("blocks.{}.{}", i / 6, i % 6), DType::f32, shape, whole(shape), memory.data() + at});
      at += n_elements(shape) * 4;
    }
  }
};

void plain_copy(char* dst, const char* src, int64_t bytes, int64_t threads) {
#pragma omp parallel for num_threads(static_cast <int>(threads)) schedule(static)
  for (int64_t t = 0; t < threads; ++t) {
    const int64_t begin = bytes * t / threads, end = bytes * (t + 1) / threads;
    std::memcpy(dst + begin, src + begin, static_cast<size_t>(end - begin));
  }
}

ShardRecord written(ShardSaver& saver) {
  while (!saver.wait(60)) {
  }
  return saver.take();
}

// Seconds of `dd ARGS`.
double dd(const std::vector<std::string>& args) {
  std::vector<char*> argv = {const_cast<char*>("dd")};
  for (const std::string& a : args) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  const double start = now_s();
  const pid_t child = ::fork();
  if (child == 0) {
    const int null = ::open("/dev/null", O_WRONLY);
    ::dup2(null, 2);
    ::execvp("dd", argv.data());
    ::_exit(127);
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) < 0 || status != 0) fail(ErrorKind::runtime, "dd {} failed", args[0]);
  return now_s() - start;
}

void drop_from_cache(const fs::path& file) {
  const int fd = ::open(file.c_str(), O_RDONLY);
  ::fsync(fd);
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  ::close(fd);
}

Json blocking(const Bench& b, const Tensors& tensors, ShardSaver& saver) {
  PagePool copy;
  copy.need(tensors.memory.bytes());
  plain_copy(copy.data(), tensors.memory.data(), tensors.memory.bytes(), b.threads);
  std::vector<double> copies, waits;
  for (int64_t r = 0; r < b.reps; ++r) {
    double start = now_s();
    plain_copy(copy.data(), tensors.memory.data(), tensors.memory.bytes(), b.threads);
    copies.push_back(now_s() - start);
    start = now_s();
    saver.begin(tensors.pieces, b.dir / "ours.h5", ShardSaver::Cache::bypass);
    saver.finish_staging();
    waits.push_back(now_s() - start);
    written(saver);
  }
  return {{"memcpy_s", median(copies)}, {"blocking_s", median(waits)}, {"ratio", median(waits) / median(copies)}};
}

// The save goes on beside a caller that does something else, as in training, or is finished at once.
Json writing(const Bench& b, const Tensors& tensors, ShardSaver& saver) {
  std::vector<double> ours, at_once, theirs;
  const double gb = static_cast<double>(tensors.memory.bytes()) / 1e9;
  const fs::path file = b.dir / "ours.h5", dd_file = b.dir / "dd.bin";
  for (int64_t r = 0; r < b.reps; ++r) {
    fs::remove(dd_file);
    theirs.push_back(gb / dd({"if=/dev/zero", "of=" + dd_file.string(), "bs=16M", fmt::format("count={}", b.mib / 16),
                              "oflag=direct", "conv=fsync"}));
    for (std::vector<double>* rates : {&ours, &at_once}) {
      fs::remove(file);
      saver.begin(tensors.pieces, file, ShardSaver::Cache::bypass);
      if (rates == &at_once) saver.finish_staging();
      written(saver);
      rates->push_back(gb / saver.times().background_s);
    }
  }
  return {{"dd_direct", median(theirs)},
          {"beside_caller", median(ours)},
          {"finished_at_once", median(at_once)},
          {"ratio", median(ours) / median(theirs)},
          {"ratio_at_once", median(at_once) / median(theirs)}};
}

Json verifying(const Bench& b, const ShardRecord& record) {
  const fs::path file = b.dir / "ours.h5";
  const Manifest manifest = join_shards({record});
  const std::vector<ExpectedFile> files = expected_files(manifest, b.dir);
  const double gb = static_cast<double>(record.file.bytes) / 1e9;
  std::vector<double> cold, warm, dd_direct, dd_buffered;
  const auto verify = [&] {
    const double start = now_s();
    for (const std::string& fault : file_faults(files, 1, nullptr)) fail(ErrorKind::runtime, "{}", fault);
    return gb / (now_s() - start);
  };
  for (int64_t r = 0; r < b.reps; ++r) {
    drop_from_cache(file);
    dd_direct.push_back(gb / dd({"if=" + file.string(), "of=/dev/null", "bs=16M", "iflag=direct"}));
    drop_from_cache(file);
    dd_buffered.push_back(gb / dd({"if=" + file.string(), "of=/dev/null", "bs=1M"}));
    drop_from_cache(file);
    cold.push_back(verify());
    warm.push_back(verify());
  }
  return {{"dd_direct", median(dd_direct)},
          {"dd_buffered", median(dd_buffered)},
          {"cold", median(cold)},
          {"warm", median(warm)},
          {"ratio", median(cold) / std::max(median(dd_direct), median(dd_buffered))}};
}

Json under_ceiling(const Bench& b, const Tensors& tensors) {
  ShardSaver saver(
      {.memory_bytes = int64_t{64} << 20, .bytes_per_s = b.ceiling, .threads = static_cast<int>(b.threads)});
  saver.begin(tensors.pieces, b.dir / "ours.h5", ShardSaver::Cache::bypass);
  written(saver);
  const double rate = static_cast<double>(tensors.memory.bytes()) / saver.times().background_s;
  return {{"asked", b.ceiling / 1e9}, {"kept", rate / 1e9}};
}

Json run(const Bench& b) {
  const Tensors tensors(b.mib << 20);
  ShardSaver saver({.threads = static_cast<int>(b.threads)});
  double start = now_s();
  saver.begin(tensors.pieces, b.dir / "ours.h5", ShardSaver::Cache::bypass);
  saver.finish_staging();
  const double first_s = now_s() - start;  // with the first touch of the pool and HDF5's layout
  written(saver);
  Json result = {{"bench", "checkpoint"},
                 {"mib", b.mib},
                 {"pieces", tensors.pieces.size()},
                 {"threads", b.threads},
                 {"reps", b.reps},
                 {"first_blocking_s", first_s},
                 {"blocking", blocking(b, tensors, saver)},
                 {"writing", writing(b, tensors, saver)}};
  saver.begin(tensors.pieces, b.dir / "ours.h5", ShardSaver::Cache::bypass);
  result["verifying"] = verifying(b, written(saver));
  if (b.ceiling > 0) result["ceiling"] = under_ceiling(b, tensors);
  fs::remove(b.dir / "ours.h5");
  fs::remove(b.dir / "dd.bin");
  return result;
}

}  // namespace
}  // namespace rw

int main(int argc, char** argv) {
  using namespace rw;
  const auto number = [&](int i, int64_t otherwise) { return argc > i ? std::atoll(argv[i]) : otherwise; };
  const Bench bench{.dir = argc > 1 ? argv[1] : "",
                    .mib = number(2, 1024) / 16 * 16,
                    .threads = number(3, 1),
                    .reps = number(4, 7),
                    .ceiling = static_cast<double>(number(5, 0)) * 1e6};
  if (!fs::is_directory(bench.dir) || bench.mib < 16 || bench.threads < 1 || bench.reps < 1) {
    fmt::print(stderr, "usage: checkpoint_bench DIR [MIB [THREADS [REPS [CEILING_MB_PER_S]]]]\n");
    return 2;
  }
  try {
    fmt::print("{}\n", run(bench).dump());
  } catch (const Error& e) {
    fmt::print(stderr, "checkpoint_bench: {}\n", e.what());
    return exit_code(e.kind());
  }
  return 0;
}
