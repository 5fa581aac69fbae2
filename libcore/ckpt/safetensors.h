// The safetensors format: an 8-byte little-endian header length, a JSON header, raw data. Single files and sharded
// directories (model.safetensors.index.json).
#pragma once
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

// A tensor to export, produced on demand so that a model larger than memory can be written: `read(dst)` fills the whole
// tensor, row-major, in `dtype`.
struct ExportTensor {
  std::string name;
  DType dtype;  // f32, bf16, f16
  Shape shape;
  std::function<void(void* dst)> read;
};
// Writes model.safetensors, or model-00001-of-0000N.safetensors and the index when larger than max_shard_bytes. Files
// get their names when all of them are complete and fsynced; those of an earlier export in `dir` are replaced or
// removed. Memory: one tensor.
void write_safetensors(const std::filesystem::path& dir, const std::vector<ExportTensor>& tensors,
                       int64_t max_shard_bytes);

}  // namespace rw
