// Tensors on their way from a source, a band of rows at a time and in order: what is larger than memory passes through
// a buffer once, in large reads, and is compared with its digests on the way.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "libcore/ckpt/manifest.h"
#include "libcore/tensor/source.h"

namespace rw {

// Rows [first, first + n) of a tensor's first dimension, all columns. A scalar is one row.
struct Band {
  int64_t first = 0, n = 0;
};
int64_t n_rows(const Shape& shape);
int64_t row_bytes(const TensorInfo& tensor);
// The box of these rows in a tensor, or in a box of it.
Box band_box(const Shape& shape, Band band);
Box band_part(const Box& box, Band band);

// A box of a band, row-major.
struct BandPart {
  Box box;
  const void* data;
};

// One tensor, read once from its first row to its last.
class RowReader {
 public:
  virtual ~RowReader() = default;
  // Parts that together make up the band, in the memory `buffer` has: buffer_bytes(n rows) at least, 4 KiB aligned.
  // Bands follow each other. Error{input} or Error{runtime} when reading fails.
  virtual std::vector<BandPart> read(Band band, char* buffer) = 0;
  virtual int64_t buffer_bytes(int64_t rows) const = 0;
  // After the last row. Error{verdict} when what was read is not what was once written.
  virtual void finish() = 0;
};

// The tensor of this name in a sorted list; null when there is none.
const TensorInfo* find_tensor(const std::vector<TensorInfo>& sorted, const std::string& name);

class RowSource {
 public:
  virtual ~RowSource() = default;
  virtual std::string where() const = 0;
  virtual const std::vector<TensorInfo>& tensors() const = 0;        // sorted by name; the types that rows are read as
  virtual std::unique_ptr<RowReader> open(size_t tensor) const = 0;  // an index into tensors()
  // Bytes of the source that belong to no tensor, in numbered parts that any process may check.
  virtual int64_t n_rests() const = 0;
  virtual void check_rest(int64_t i) const = 0;  // Error{verdict}
};

// A committed checkpoint. Every byte of it is compared with its digest when all tensors and rests are read. Opening it
// is Error{input} when there is no readable manifest; Error{verdict} when a file of it is missing or has another size.
std::unique_ptr<RowSource> checkpoint_rows(const std::filesystem::path& dir, const Manifest& manifest);
// Any source: weights as `dtype`, converted (elements.h) where they are stored as another; what has a prefix before a
// slash ("adam.m/...") as it is stored. `source` outlives it.
std::unique_ptr<RowSource> converted_rows(const TensorSource& source, DType dtype);

}  // namespace rw
