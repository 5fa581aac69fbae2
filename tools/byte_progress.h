// Progress of a job that reads or writes a known number of bytes, told from any thread.
#pragma once
#include <cstdint>
#include <mutex>
#include <string>

#include "libcore/base/units.h"
#include "tools/progress.h"

namespace rw {

class ByteProgress {
 public:
  ByteProgress(std::string phase, int64_t total) : phase_(std::move(phase)), total_(total) {}
  void now_at(const std::string& what) {
    const std::lock_guard lock(mutex_);
    what_ = what;
    show();
  }
  void add(int64_t bytes) {
    const std::lock_guard lock(mutex_);
    done_ += bytes;
    show();
  }

 private:
  void show() {
    const double done = static_cast<double>(done_), total = static_cast<double>(total_);
    bar_.show(phase_, total_ == 0 ? 0 : done / total,
              (what_.empty() ? "" : what_ + "  ") + format_bytes(done) + " of " + format_bytes(total));
  }

  std::mutex mutex_;
  std::string phase_, what_;
  int64_t done_ = 0, total_;
  ProgressBar bar_;
};

}  // namespace rw
