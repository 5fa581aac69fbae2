// Tensors to save: a model's training state, or a number of bytes in the shapes of a transformer.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "libcore/base/page_pool.h"
#include "libcore/spec/model_spec.h"
#include "libcore/tensor/source.h"

namespace rw {

class BenchTensors {
 public:
  // `bytes` of this rank's own: a multiple of 4.
  BenchTensors(int64_t bytes, int rank);
  // This rank's rows of every parameter and of its two moments, in f32 (12 bytes a parameter over all ranks).
  BenchTensors(const ModelSpec& model, int rank, int ranks);
  const std::vector<TensorPiece>& pieces() const { return pieces_; }
  char* data() const { return memory_.data(); }
  int64_t bytes() const { return bytes_; }

  // What the second constructor would hold.
  static int64_t bytes_of(const ModelSpec& model, int rank, int ranks);

 private:
  void lay_out(std::vector<TensorPiece> pieces);

  PagePool memory_;
  std::vector<TensorPiece> pieces_;
  int64_t bytes_ = 0;
};

}  // namespace rw
