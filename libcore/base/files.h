// Files: whole reads, atomic writes (temporary, fsync, rename, fsync of the directory), memory maps.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

namespace rw {

// Whole file; Error{input} says which file and why.
std::string read_file(const std::filesystem::path& file);

// The same, of a regular file only: a pipe or a device in the place of one must not keep the reader waiting or reading
// for ever.
std::string read_regular_file(const std::filesystem::path& file);

// Writes `content` so that a reader sees the old file or the new one, never a part. Of a symbolic link the file that it
// points to is replaced; a device or a pipe is written into. Error{usage}: a directory, a folder that is not there or
// not writable; Error{runtime}: a disk that is full or fails.
void write_file_atomic(const std::filesystem::path& file, std::string_view content);

// fsync of a directory (after a rename in it) or of a file by path.
void fsync_path(const std::filesystem::path& path);

// Makes a directory and what is missing above it; when this returns the new names are on disk.
void make_directories(const std::filesystem::path& dir, std::error_code& error);

// An exclusive lock on a file, held while this lives and given up by the system when the process dies; move-only.
class FileLock {
 public:
  FileLock() = default;
  // Makes the file when it is missing. Error{usage} with `busy` as its message when another process holds the lock.
  FileLock(const std::filesystem::path& file, const std::string& busy);
  FileLock(FileLock&&) noexcept;
  FileLock& operator=(FileLock&&) noexcept;
  ~FileLock();

 private:
  int fd_ = -1;
};

// A read-only memory map of a regular file; move-only, unmapped when it goes.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const std::filesystem::path& file);
  MappedFile(MappedFile&&) noexcept;
  MappedFile& operator=(MappedFile&&) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();
  const std::byte* data() const { return data_; }
  int64_t size() const { return size_; }

 private:
  const std::byte* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace rw
