// A file written in large pieces, past the page cache where the file system can: on a cold page cache that is several
// times faster than buffered writing, and it leaves the cache to others.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

namespace rw {

enum class FileCache { bypass, keep };

// Used by one thread at a time. Every failure is Error{runtime} naming the file, the action, bytes, offset and cause.
class DirectFile {
 public:
  static constexpr int64_t kAlignBytes = 4096;

  // Creates the file or empties it.
  DirectFile(const std::filesystem::path& file, FileCache cache);
  DirectFile(const DirectFile&) = delete;
  DirectFile& operator=(const DirectFile&) = delete;
  ~DirectFile();

  // Its length. A full disk is found here, before long writing, where the file system can reserve.
  void reserve(int64_t bytes);
  // Direct where both the memory and the offset are multiples of kAlignBytes; what is not (the end of the file, the
  // rest of a write that the system cut short) goes through the page cache.
  void write(const char* data, int64_t bytes, int64_t at);
  // On disk when it returns. Network file systems report a full disk here.
  void sync_and_close();

 private:
  void set_direct(bool direct);
  [[noreturn]] void failed(const std::string& action, int error) const;

  std::filesystem::path file_;
  int fd_ = -1;
  bool can_direct_;  // until the file system says no
  bool direct_;      // the descriptor's mode now
};

}  // namespace rw
