// `dbench storage`: what the file system under a folder gives: large files written and read, small files made.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "libcore/base/fields.h"
#include "libcore/bench/record/bench_record.h"
#include "libcore/comm/comm.h"

namespace rw {

struct StorageSpec {
  std::string dir = ".";
  int64_t size = int64_t{1} << 30;  // of a rank's file
  int64_t repeats = 3, small_files = 64;
  double comm_timeout = 300;
};
FieldList fields(StorageSpec& spec);

struct StorageJob {
  const StorageSpec& spec;
  Comm& comm;
  std::function<void(const std::string& what)> progress;  // may be null
};
// Collective; all ranks do each thing at the same time, behind a barrier, the things interleaved over the repeats. What
// was written is removed on every way out, signals included. Rank 0's record is the job's. SharedError{usage}: too
// little space (a tenth of the file system stays free), no folder; SharedError{runtime}: the disk fails.
BenchRecord run_storage_bench(const StorageJob& job);

}  // namespace rw
