#include "libcore/ckpt/shard_file.h"

#include <algorithm>

#include "libcore/ckpt/shard_saver.h"

namespace rw {

std::vector<ByteRange> outside(std::vector<ByteRange> pieces, int64_t bytes) {
  std::sort(pieces.begin(), pieces.end(), [](const ByteRange& a, const ByteRange& b) { return a.begin < b.begin; });
  std::vector<ByteRange> gaps;
  int64_t at = 0;
  for (const ByteRange& piece : pieces) {
    if (piece.begin > at) gaps.push_back({at, piece.begin});
    at = std::max(at, piece.end);
  }
  if (at < bytes) gaps.push_back({at, bytes});
  return gaps;
}

ShardRecord write_shard_file(const std::filesystem::path& file, const std::vector<TensorPiece>& pieces) {
  constexpr int64_t kMemoryBytes = int64_t{32} << 20;  // enough for copying, digesting and writing at the same time
  ShardSaver saver({.memory_bytes = kMemoryBytes});
  saver.begin(pieces, file, ShardSaver::Cache::bypass);
  while (!saver.wait(60)) {
  }
  return saver.take();
}

}  // namespace rw
