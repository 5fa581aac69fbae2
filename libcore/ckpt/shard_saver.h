// One rank's file, written in the background from a private copy of its pieces.
//
// The copy is an image of the file (HDF5's own structures, padding and data in file order), made unit by unit in a pool
// of host memory that is kept from save to save. A unit is filled by the saver's own thread while the caller goes on,
// or by the caller in finish_staging(); then it is digested, written and its memory is free for the next one. A pool
// smaller than the image makes it pass in waves.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "libcore/ckpt/manifest.h"
#include "libcore/tensor/source.h"

namespace rw {

struct SaverOptions {
  int64_t memory_bytes = 0;  // of the pool; 0: whatever the image needs. Rounded up to a few units
  double bytes_per_s = 0;    // ceiling of the writing, so that it cannot starve other users of the disk; 0: none
  int threads = 1;           // of the caller's team, for finish_staging()
  CopyPiece copy = nullptr;  // of pieces that do not lie in the host's memory
};

enum class SaveState { idle, staging, writing, written, failed };

struct SaveTimes {
  double begin_s = 0;       // the caller's time in begin()
  double finish_s = 0;      // the caller's time in finish_staging()
  double background_s = 0;  // from begin() to the file being on disk
  int64_t bytes = 0;        // of the file
};

class ShardSaver {
 public:
  explicit ShardSaver(const SaverOptions& options);
  ShardSaver(const ShardSaver&) = delete;
  ShardSaver& operator=(const ShardSaver&) = delete;
  ~ShardSaver();  // ends a save under way, whose file is then worthless

  // Optional, state idle: has the own thread lay out the file for such pieces and touch the pool, so that the first
  // save blocks no longer than the others (fresh memory costs several times a copy). The pieces' data are not read.
  void prepare(const std::vector<TensorPiece>& pieces);

  // Direct I/O where the file system can, or through the page cache, for whoever reads the file next.
  enum class Cache { bypass, keep };
  // Needs state idle. Writes `file` (created, or its content replaced) and fsyncs it. The pieces' memory must not
  // change until finish_staging() has returned. Returns soon; errors of any kind show as state failed.
  void begin(const std::vector<TensorPiece>& pieces, const std::filesystem::path& file, Cache cache);
  // Returns when everything is staged (or the save has failed): the pieces may change. Copies with all of the caller's
  // threads what the saver's thread has not come to.
  void finish_staging();
  SaveState state() const;
  // Waits until state is written or failed, at most so long; false when it is neither yet.
  bool wait(double seconds);
  // state written: what the file holds, and idle afterwards. state failed: Error{runtime} with file, action, bytes and
  // cause, and idle afterwards.
  ShardRecord take();
  SaveTimes times() const;     // of the save under way or the last one
  int64_t pool_bytes() const;  // host memory held

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rw
