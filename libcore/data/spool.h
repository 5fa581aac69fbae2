// A spool: bytes appended to an unnamed file (created in a folder, unlinked at once, so that the disk space goes with
// the process whatever ends it), then read back from the start.
#pragma once
#include <cstdint>
#include <filesystem>
#include <vector>

namespace rw {

class Spool {
 public:
  // In `target`'s folder; errors speak of `target`.
  explicit Spool(const std::filesystem::path& target);
  Spool(const Spool&) = delete;
  Spool& operator=(const Spool&) = delete;
  ~Spool();
  void append(const void* data, int64_t bytes);  // Error{runtime} with the path and the cause (disk full)
  void flush();
  int64_t size() const { return size_; }
  int descriptor() const { return fd_; }  // for reading from the start, after flush(); rewind() to read once more
  void rewind();
  // Copies all of it to `destination_fd` from byte `at` on.
  void copy_to(int destination_fd, int64_t at);

 private:
  void write_buffer();

  std::filesystem::path target_;
  int fd_ = -1;
  int64_t size_ = 0;
  std::vector<char> buffer_;
};

// Creates `file` and checks that `bytes` can be written to it; Error{runtime} speaks of `target`. File systems that
// cannot tell pass.
void check_room(const std::filesystem::path& file, int64_t bytes, const std::filesystem::path& target);
// pwrite of everything; Error{runtime} with the path and the cause.
void write_all(int fd, const void* data, int64_t bytes, int64_t at, const std::filesystem::path& target);

}  // namespace rw
