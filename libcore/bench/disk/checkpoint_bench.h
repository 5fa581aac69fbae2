// `dbench ckpt`: what a checkpoint costs a training run, by the very code that trainers save and resume with, beside a
// plain memory copy and raw file I/O of the same bytes in the same run.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "libcore/base/fields.h"
#include "libcore/bench/record/bench_record.h"
#include "libcore/comm/comm.h"

namespace rw {

struct CheckpointBenchSpec {
  std::string model;                  // its weights and AdamW's moments (f32), dealt out to the ranks by rows
  int64_t size = int64_t{256} << 20;  // of a rank's tensors, without a model
  std::string dir = ".", tier = "durable";
  int64_t repeats = 3, threads = 1, ranks_per_node = 0;
  double comm_timeout = 300;
  double loop_s = 1;  // of the products that a save is measured beside, at least
};
FieldList fields(CheckpointBenchSpec& spec);

struct CheckpointBenchJob {
  const CheckpointBenchSpec& spec;
  Comm& comm;
  std::function<void(const std::string& what)> progress;  // may be null
};
// Collective; repeats are interleaved. Metrics: blocking_s (of the main thread, the worst rank's; its limit is the copy
// memcpy_s), save_s (with the commit), written_s, save (GB/s) beside raw_write and their ratio, verify (GB/s, read from
// disk with digests compared) beside raw_read, load (GB/s, into memory), loop_slowdown (per cent by which products slow
// down while a save goes on), exact counts of bytes and pieces. What was written is removed on every way out.
// SharedError{usage}: too little space, unknown model, tier local on one node; SharedError{runtime}: a save failed.
BenchRecord run_checkpoint_bench(const CheckpointBenchJob& job);

}  // namespace rw
