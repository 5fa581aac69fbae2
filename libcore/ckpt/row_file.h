// Files that tensors pass between: large reads and writes past the page cache where the file system allows it, small
// ones through it.
#pragma once
#include <cstdint>
#include <filesystem>

namespace rw {

// Memory at a page boundary.
class AlignedBuffer {
 public:
  explicit AlignedBuffer(int64_t bytes);
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;
  ~AlignedBuffer();
  char* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  char* data_;
  int64_t bytes_;
};

// An open file. Threads may use it together. Error{runtime} names the file, what was being done and the cause.
class RowFile {
 public:
  static constexpr int64_t kAlign = 4096;
  static constexpr int64_t kDirectBytes = int64_t{256} << 10;  // below, the page cache gathers what lies together

  explicit RowFile(const std::filesystem::path& file);  // for reading; opened when first read
  // For writing: a file that is there already.
  enum class Open { existing };
  RowFile(const std::filesystem::path& file, Open how);
  RowFile(RowFile&& other) noexcept;
  RowFile& operator=(RowFile&&) = delete;
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

}  // namespace rw
