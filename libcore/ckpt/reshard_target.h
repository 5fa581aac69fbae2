// The files that reshard() writes: laid out at once, filled tensor by tensor by several threads and processes.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "libcore/base/hash.h"
#include "libcore/ckpt/manifest.h"
#include "libcore/ckpt/row_file.h"
#include "libcore/ckpt/row_source.h"

namespace rw {

// A box of a tensor and where it goes.
struct TargetPiece {
  size_t file, index;  // index: of the file's pieces
  Box box;
  int64_t at;  // byte offset in the file, page-aligned
};

class TargetFiles {
 public:
  // Lays the files out; nothing is on disk yet. `dir` is the unfinished step's directory.
  TargetFiles(const std::filesystem::path& dir, const std::vector<std::vector<TensorPiece>>& files);
  size_t size() const { return layouts_.size(); }
  int64_t bytes(size_t file) const { return layouts_[file].bytes; }
  const std::vector<TargetPiece>& pieces(const std::string& tensor) const;  // none empty

  // Makes a file with its whole length and everything in it but the pieces. Once, before any piece of it is written.
  void create(size_t file);
  // Any thread, at a page-aligned offset (row_file.h).
  void write(size_t file, const char* data, int64_t bytes, int64_t at);
  // Everything that this process has written is on disk afterwards.
  void sync();
  // `digests`: of all pieces of the file, by index.
  ShardRecord record(size_t file, const std::vector<uint64_t>& digests) const;

 private:
  struct FileLayout {
    std::map<int64_t, std::vector<char>> pages;  // HDF5's own
    std::vector<int64_t> offsets;
    int64_t bytes = 0;
    uint64_t rest_digest = 0;
  };

  const std::vector<std::vector<TensorPiece>>& pieces_;
  std::unique_ptr<RowFiles> files_;
  std::vector<FileLayout> layouts_;
  std::map<std::string, std::vector<TargetPiece>> by_tensor_;
  std::mutex mutex_;
  std::set<size_t> written_;
};

// Writes one tensor into the files, from its first row to its last.
class RowWriter {
 public:
  RowWriter(TargetFiles& files, const TensorInfo& tensor);
  // Memory for bands of so many rows.
  int64_t buffer_bytes(int64_t rows) const;
  // `parts` make up the band; bands follow each other. `buffer`: buffer_bytes(n rows), page-aligned.
  void write(Band band, const std::vector<BandPart>& parts, char* buffer);
  // After the last row: the digest of each of files.pieces(tensor).
  std::vector<uint64_t> finish(char* buffer);

 private:
  struct Output {
    const TargetPiece* piece;
    StreamHash hash;
    std::vector<char> tail;  // less than a page that waits for the next rows
    int64_t written = 0;     // bytes on disk
  };
  TargetFiles& files_;
  TensorInfo tensor_;
  std::vector<Output> outputs_;
};

}  // namespace rw
