// Files that tensors pass between: large reads and writes past the page cache where the file system allows it, small
// ones through it.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace rw {

// An open file. Threads may use it together. Error{runtime} names the file, what was being done and the cause.
class RowFile {
 public:
  static constexpr int64_t kAlign = 4096;
  static constexpr int64_t kDirectBytes = int64_t{256} << 10;  // below, the page cache gathers what lies together

  enum class For { reading, writing };  // a file that is there already
  RowFile(const std::filesystem::path& file, For what);
  RowFile(const RowFile&) = delete;
  RowFile& operator=(const RowFile&) = delete;
  ~RowFile();

  const std::filesystem::path& path() const { return path_; }
  // Memory that read() needs.
  static int64_t room(int64_t bytes) { return bytes < kDirectBytes ? bytes : bytes + 2 * kAlign; }
  // Bytes [at, at + bytes), somewhere in the room at `buffer`, which is aligned where they are kDirectBytes or more.
  const char* read(int64_t at, int64_t bytes, char* buffer) const;
  // `at` is aligned; so are data and bytes, unless this is the end of what is written there.
  void write(const char* data, int64_t bytes, int64_t at);
  void sync();
  void close();

 private:
  std::filesystem::path path_;
  int fd_ = -1, direct_fd_ = -1;  // direct: -1 where the file system has no such thing
};

// Any number of files, of which a few are open at a time. Threads may use it together.
class RowFiles {
 public:
  RowFiles(std::vector<std::filesystem::path> files, RowFile::For what) : paths_(std::move(files)), what_(what) {}
  size_t size() const { return paths_.size(); }
  const std::filesystem::path& path(size_t i) const { return paths_[i]; }
  // Stays open while the caller has it.
  std::shared_ptr<RowFile> open(size_t i);
  void close_all();

 private:
  std::vector<std::filesystem::path> paths_;
  RowFile::For what_;
  std::mutex mutex_;
  std::map<size_t, std::shared_ptr<RowFile>> open_;
};

}  // namespace rw
