// The safetensors format: an 8-byte little-endian header length, a JSON header, raw data. Single files and sharded
// directories (model.safetensors.index.json).
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "libcore/tensor/source.h"

namespace rw {

// `path`: a .safetensors file, a model.safetensors.index.json, or a directory with one of them. Every header is checked
// at the door: length, JSON, dtypes (f64 f32 f16 bf16 i64; others are listed but not readable), shapes against offsets,
// overlaps and holes, file size.
std::unique_ptr<TensorSource> open_safetensors(const std::filesystem::path& path);
bool holds_safetensors(const std::filesystem::path& path);

// A tensor to export, produced on demand so that a model larger than memory can be written: `read(rows, dst)` fills dst
// with a band of it, row-major, in `dtype`. A band is some rows of the first dimension with all columns (a scalar is
// one row); bands are asked for in order. Producing an element may take 16 bytes beside dst.
struct ExportTensor {
  std::string name;
  DType dtype;  // f32, bf16, f16
  Shape shape;
  std::function<void(const Box& rows, void* dst)> read;
};
struct SafetensorsOptions {
  std::string stem =
      "model";  // MODEL.safetensors, or MODEL-00001-of-0000N.safetensors and MODEL.safetensors.index.json
  int64_t max_shard_bytes = int64_t{5} << 30;
  int64_t memory_bytes = int64_t{1} << 30;  // for a band, at least a row
};
struct WrittenFile {
  std::string name;
  int64_t bytes = 0;
  uint64_t digest = 0;  // hash64 of the whole file, taken from memory
};
// Writes one file, or several and an index when larger than max_shard_bytes, and returns them. Files get their names
// when all of them are complete and fsynced; those of an earlier export in `dir` are replaced or removed.
std::vector<WrittenFile> write_safetensors(const std::filesystem::path& dir, const std::vector<ExportTensor>& tensors,
                                           const SafetensorsOptions& options);

}  // namespace rw
