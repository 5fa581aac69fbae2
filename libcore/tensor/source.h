// Named tensors that can be read by boxes: a checkpoint, a safetensors file, a directory of them.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "kernels/dtype.h"
#include "libcore/spec/box.h"

namespace rw {

struct TensorInfo {
  std::string name;
  DType dtype;
  Shape shape;
};

class TensorSource {
 public:
  virtual ~TensorSource() = default;
  virtual std::string where() const = 0;                       // for messages: the path
  virtual const std::vector<TensorInfo>& tensors() const = 0;  // sorted by name
  // Reads `box` of tensor `name` as row-major `dst_type` (f32, or the stored type) into dst. Error{input} names file,
  // tensor, expected and found.
  virtual void read(const std::string& name, const Box& box, DType dst_type, void* dst) const = 0;

  const TensorInfo* find(const std::string& name) const;  // null when absent
};

// One tensor, or one box of it, to be written: `data` holds the box, row-major, in whatever memory its maker says.
struct TensorPiece {
  std::string name;
  DType dtype;
  Shape shape;  // of the whole tensor
  Box box;
  const void* data;
};
// dst, the host's, <- bytes of a piece's data; from any number of threads. Null: the data are in the host's memory.
using CopyPiece = std::function<void(char* dst, const char* src, int64_t bytes)>;

}  // namespace rw
