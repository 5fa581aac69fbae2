#include "libcore/bench/disk/bench_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "libcore/spec/param_table.h"

namespace rw {
namespace {

// The rank's even part of the rows; a scalar is rank 0's.
Box rows_of(const Shape& shape, int rank, int ranks) {
  Box box = whole(shape);
  if (shape.empty()) return box;
  const int64_t begin = shape[0] * rank / ranks, end = shape[0] * (rank + 1) / ranks;
  box.offset[0] = begin, box.extent[0] = end - begin;
  return box;
}

std::vector<TensorPiece> state_pieces(const ModelSpec& model, int rank, int ranks) {
  std::vector<TensorPiece> pieces;
  for (const Param& p : param_table(model))
    for (const char* what : {"", "adam.m/", "adam.v/"})
      pieces.push_back({what + p.name, DType::f32, p.shape, rows_of(p.shape, rank, ranks), nullptr});
  return pieces;
}

int64_t bytes_of_piece(const TensorPiece& piece) { return piece.box.size() * 4; }

}  // namespace

void BenchTensors::lay_out(std::vector<TensorPiece> pieces) {
  pieces_ = std::move(pieces);
  for (const TensorPiece& piece : pieces_) bytes_ += bytes_of_piece(piece);
  memory_.need(std::max<int64_t>(bytes_, 4));
  uint32_t x = 2463534242;  // xorshift (Marsaglia 2003), kept in the range of ordinary floats
  for (int64_t at = 0; at + 4 <= bytes_; at += 4) {
    x ^= x << 13, x ^= x >> 17, x ^= x << 5;
    const float v = static_cast<float>(x >> 8) * 0x1p-24F - 0.5F;
    std::memcpy(memory_.data() + at, &v, 4);
  }
  int64_t at = 0;
  for (TensorPiece& piece : pieces_) {
    piece.data = memory_.data() + at;
    at += bytes_of_piece(piece);
  }
}

BenchTensors::BenchTensors(int64_t bytes, int rank) {
  const Shape shapes[] = {{768, 2304}, {768}, {768, 768}, {3072, 768}, {768}, {768, 3072}};
  std::vector<TensorPiece> pieces;
  for (int64_t at = 0, i = 0; at + 4 <= bytes; ++i) {
    Shape shape = shapes[i % 6];
    if (n_elements(shape) * 4 > bytes - at) shape = {(bytes - at) / 4};
    pieces.push_back(
        {fmt::format("rank.{}.blocks.{}.{}", rank, i / 6, i % 6), DType::f32, shape, whole(shape), nullptr});
    at += n_elements(shape) * 4;
  }
  lay_out(std::move(pieces));
}

BenchTensors::BenchTensors(const ModelSpec& model, int rank, int ranks) { lay_out(state_pieces(model, rank, ranks)); }

int64_t BenchTensors::bytes_of(const ModelSpec& model, int rank, int ranks) {
  int64_t bytes = 0;
  for (const TensorPiece& piece : state_pieces(model, rank, ranks)) bytes += bytes_of_piece(piece);
  return bytes;
}

}  // namespace rw
