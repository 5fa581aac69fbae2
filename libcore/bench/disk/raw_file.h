// Raw file I/O, timed: what the disk gives a program that does nothing else.
#pragma once
#include <cstdint>
#include <filesystem>

#include "libcore/base/direct_file.h"
#include "libcore/base/page_pool.h"

namespace rw {

// A block of bytes that no file system can compress or share: pseudo-random, each page stamped anew before it is
// written.
class RawBlock {
 public:
  static constexpr int64_t kBytes = int64_t{16} << 20;
  RawBlock();
  char* data() const { return pool_.data(); }
  void stamp(int64_t block);  // every page differs from every other block's

 private:
  PagePool pool_;
};

// Seconds from opening to being on disk (fsync). `bytes`: a multiple of DirectFile::kAlignBytes.
double write_raw(const std::filesystem::path& file, int64_t bytes, FileCache cache, RawBlock& block);

// direct: past the page cache (O_DIRECT). Seconds; NaN where the file system cannot.
enum class ReadWay { buffered, direct };
double read_raw(const std::filesystem::path& file, ReadWay way, RawBlock& block);

// Asks the system to forget the file's pages. The share of them that is still in memory afterwards: file systems that
// live there keep all.
double drop_from_cache(const std::filesystem::path& file);

// Small files, as a checkpoint's manifest is written: median and 99th percentile over `n` files.
struct SmallFiles {
  double create_s = 0, create_p99_s = 0;  // made, 4 KiB written, fsynced
  double rename_s = 0, rename_p99_s = 0;  // renamed, the folder fsynced
  double remove_s = 0;
};
SmallFiles time_small_files(const std::filesystem::path& dir, int64_t n);

}  // namespace rw
