#include "libcore/bench/disk/storage_bench.h"

#include <cmath>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "libcore/base/clock.h"
#include "libcore/bench/comm/job_quiet.h"
#include "libcore/bench/disk/rank_rates.h"
#include "libcore/bench/disk/raw_file.h"
#include "libcore/bench/disk/scratch_dir.h"
#include "libcore/comm/agree.h"

namespace rw {
namespace {

constexpr double kColdShare = 0.05;  // of a file's pages that may be in memory when it is called cold

int64_t whole_pages(int64_t bytes) {
  return (bytes + DirectFile::kAlignBytes - 1) / DirectFile::kAlignBytes * DirectFile::kAlignBytes;
}

// The measured kinds of I/O, by name, in the order in which a repeat does them.
struct Series {
  RateSeries write_direct{"write_direct", {}}, write_fsync{"write_buffered_fsync", {}}, read_direct{"read_direct", {}},
      read_cold{"read_cold", {}}, read_cached{"read_cached", {}};
  std::vector<double> create_us, rename_us, remove_us, create_p99_us, rename_p99_us;
};

class Bench {
 public:
  explicit Bench(const StorageJob& job) : job_(job), bytes_(whole_pages(job.spec.size)) {
    agree(job.comm, [&] {
      check_free_space(job.spec.dir, bytes_ * job.comm.size());
      scratch_.emplace(job.spec.dir);
      block_ = std::make_unique<RawBlock>();
    });
  }

  void repeat(Series& s) {
    s.write_direct.repeats.push_back(rates("writing past the page cache", [&](double& seconds) {
      seconds = write_raw(file(), bytes_, FileCache::bypass, *block_);
    }));
    s.read_direct.repeats.push_back(rates(
        "reading past the page cache", [&](double& seconds) { seconds = read_raw(file(), ReadWay::direct, *block_); }));
    s.write_fsync.repeats.push_back(rates("writing through the page cache", [&](double& seconds) {
      std::filesystem::remove(file());
      seconds = write_raw(file(), bytes_, FileCache::keep, *block_);
    }));
    agree(job_.comm, [&] { cold_ = drop_from_cache(file()) <= kColdShare; });
    const bool cold = job_.comm.all_reduce_value(int64_t{cold_}, ReduceOp::min) > 0;
    in_memory_ = in_memory_ || !cold;
    const auto read = [&](double& seconds) { seconds = read_raw(file(), ReadWay::buffered, *block_); };
    s.read_cold.repeats.push_back(rates("reading what is on disk", [&](double& seconds) {
      read(seconds);
      if (!cold) seconds = std::numeric_limits<double>::quiet_NaN();
    }));
    s.read_cached.repeats.push_back(rates("reading what is in memory", read));
    small(s);
    agree(job_.comm, [&] { std::filesystem::remove(file()); });
  }
  bool in_memory() const { return in_memory_; }
  int64_t bytes() const { return bytes_; }

 private:
  std::filesystem::path file() const { return scratch_->path() / "raw.bin"; }

  // A thing that all ranks do at once; it says how long it took.
  template <typename Work>
  RankRates rates(const char* what, const Work& work) {
    if (job_.progress) job_.progress(what);
    double seconds = 0;
    job_.comm.barrier();
    agree(job_.comm, [&] { work(seconds); });
    return rank_rates(job_.comm, bytes_, seconds);
  }

  void small(Series& s) {
    if (job_.progress) job_.progress("making small files");
    SmallFiles t;
    job_.comm.barrier();
    agree(job_.comm, [&] { t = time_small_files(scratch_->path(), job_.spec.small_files); });
    const auto slowest = [&](double seconds) { return 1e6 * job_.comm.all_reduce_value(seconds, ReduceOp::max); };
    s.create_us.push_back(slowest(t.create_s));
    s.create_p99_us.push_back(slowest(t.create_p99_s));
    s.rename_us.push_back(slowest(t.rename_s));
    s.rename_p99_us.push_back(slowest(t.rename_p99_s));
    s.remove_us.push_back(slowest(t.remove_s));
  }

  const StorageJob& job_;
  int64_t bytes_;
  std::optional<ScratchDir> scratch_;
  std::unique_ptr<RawBlock> block_;
  bool cold_ = false, in_memory_ = false;
};

}  // namespace

FieldList fields(StorageSpec& spec) {
  return {
      {.name = "dir", .value = &spec.dir, .help = "a folder on the file system to measure"},
      {.name = "size", .value = &spec.size, .help = "of a rank's file", .min = 4096, .max = 1e15, .is_size = true},
      {.name = "repeats", .value = &spec.repeats, .help = "of everything, interleaved", .min = 1, .max = 1000},
      {.name = "small-files",
       .value = &spec.small_files,
       .help = "made, renamed and removed a repeat and rank",
       .min = 1,
       .max = 1e6},
      {.name = "comm-timeout", .value = &spec.comm_timeout, .help = "seconds to wait for a rank", .min = 0.001},
  };
}

BenchRecord run_storage_bench(const StorageJob& job) {
  job.comm.set_timeout(job.spec.comm_timeout);
  Bench bench(job);
  Series s;
  QuietMeter meter(0);
  const double start = now_s();
  meter.start();
  for (int64_t r = 0; r < job.spec.repeats; ++r) bench.repeat(s);
  meter.stop();
  const JobQuiet quiet = judge_job_quiet(job.comm, meter, now_s() - start);
  const int ranks = job.comm.size();
  StorageSpec copy = job.spec;
  BenchRecord record =
      new_record("storage", fmt::format("{} ranks, {} bytes each", ranks, bench.bytes()), fields_json(fields(copy)));
  record.repeats = job.spec.repeats;
  record.cpu_share = quiet.cpu_share;
  record.quiet = quiet.is_quiet;
  for (const RateSeries* series : {&s.write_direct, &s.write_fsync, &s.read_direct, &s.read_cold, &s.read_cached})
    add_rates(record, *series, ranks);
  add_samples(record, {.name = "small_create_fsync_us", .unit = "us"}, s.create_us);
  add_samples(record, {.name = "small_create_fsync_p99_us", .unit = "us"}, s.create_p99_us);
  add_samples(record, {.name = "small_rename_fsync_us", .unit = "us"}, s.rename_us);
  add_samples(record, {.name = "small_rename_fsync_p99_us", .unit = "us"}, s.rename_p99_us);
  add_samples(record, {.name = "small_remove_us", .unit = "us"}, s.remove_us);
  record.details =
      Json{{"ranks", ranks}, {"bytes_per_rank", bench.bytes()}, {"files_stay_in_memory", bench.in_memory()}}.dump();
  return record;
}

}  // namespace rw
