// The manifest: what a checkpoint holds and where every byte of it lies. Text is JSON whose last key is a digest of all
// bytes before it, so that a cut or changed manifest is recognised before a word of it is believed.
//
//   {"format": "rankwright-checkpoint", "version": 1, "step": 100, "created": "...", "identity": {...}, "state": {...},
//    "files": [{"name": "rank-00000.h5", "bytes": 8192, "rest_digest": "<16 hex>"}, ...],
//    "tensors": [{"name": "embed.token.weight", "dtype": "f32", "shape": [512, 64], "pieces": [
//      {"file": 0, "at": 4096, "offset": [0, 0], "extent": [256, 64], "digest": "<16 hex>"}, ...]}, ...],
//    "digest": "<16 hex>"}
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "libcore/spec/box.h"
#include "libcore/tensor/source.h"

namespace rw {

struct PieceRecord {
  Box box;
  int64_t file = 0;     // index into Manifest::files
  int64_t at = 0;       // byte offset in the file
  uint64_t digest = 0;  // of the box's bytes
};

struct TensorRecord {
  TensorInfo info;
  std::vector<PieceRecord> pieces;  // none empty
};

struct FileRecord {
  std::string name;
  int64_t bytes = 0;         // the whole file
  uint64_t rest_digest = 0;  // of what lies outside the pieces (HDF5's own structures and padding), in file order
};

// What one rank wrote. Tensors of which it had only empty boxes are listed without pieces.
struct ShardRecord {
  FileRecord file;
  std::vector<TensorRecord> tensors;
};

struct Manifest {
  int64_t step = 0;
  std::string created;          // UTC
  std::string identity, state;  // JSON text
  std::vector<FileRecord> files;
  std::vector<TensorRecord> tensors;  // sorted by name
};

// From every rank's shard. Error{runtime} when ranks disagree on a tensor, or the boxes do not cover one exactly once.
Manifest join_shards(const std::vector<ShardRecord>& shards);
// Empty when the pieces cover the tensor exactly once and lie inside their files; otherwise what is wrong.
std::string layout_fault(const TensorRecord& tensor, const std::vector<FileRecord>& files);

std::string manifest_text(const Manifest& manifest);
// Error{input} names `where`, the key, what was expected and what was found.
Manifest parse_manifest(std::string_view text, const std::string& where);

std::string shard_text(const ShardRecord& shard);
ShardRecord parse_shard(std::string_view text, const std::string& where);

}  // namespace rw
