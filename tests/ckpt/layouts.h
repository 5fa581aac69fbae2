// A made-up model, and random ways to spread its tensors over ranks.
#pragma once
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/dtype.h"
#include "libcore/spec/box.h"
#include "libcore/tensor/source.h"

namespace layouts {

// Every element is a function of its tensor and place, exact in every dtype: whole numbers below 128.
inline std::vector<char> fill(const rw::TensorInfo& t, const rw::Box& box, size_t salt) {
  const int64_t width = rw::dtype_bytes(t.dtype), n = box.size();
  std::vector<char> bytes(static_cast<size_t>(n * width));
  rw::Shape at = box.offset;
  for (int64_t i = 0; i < n; ++i) {
    int64_t linear = 0;
    for (size_t d = 0; d < at.size(); ++d) linear = linear * t.shape[d] + at[d];
    const int64_t value = static_cast<int64_t>((static_cast<uint64_t>(linear) * 37 + salt * 11) % 127);
    char* out = bytes.data() + i * width;
    const float x = static_cast<float>(value);
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    if (t.dtype == rw::DType::f32) std::memcpy(out, &x, 4);
    if (t.dtype == rw::DType::i64) std::memcpy(out, &value, 8);
    if (t.dtype == rw::DType::bf16) std::memcpy(out, reinterpret_cast<const char*>(&bits) + 2, 2);
    if (t.dtype == rw::DType::f16) {
      const uint16_t h =
          value == 0 ? uint16_t{0} : static_cast<uint16_t>((((bits >> 23) - 112) << 10) | ((bits >> 13) & 1023));
      std::memcpy(out, &h, 2);
    }
    for (size_t d = at.size(); d-- > 0;) {
      if (++at[d] < box.offset[d] + box.extent[d]) break;
      at[d] = box.offset[d];
    }
  }
  return bytes;
}

inline std::vector<rw::TensorInfo> model() {
  using rw::DType;
  return {{"adam.m/blocks.0.w", DType::f32, {37, 19}},
          {"blocks.0.b", DType::bf16, {101}},
          {"blocks.0.w", DType::f32, {37, 19}},
          {"counts", DType::i64, {1}},
          {"cube", DType::f16, {3, 5, 7}},
          {"empty", DType::f32, {0, 4}},
          {"large", DType::f32, {1031, 129}},
          {"scalar", DType::f32, {}}};
}

// Cuts a box at random until there are about n of them.
inline std::vector<rw::Box> cut(const rw::Shape& shape, int n, std::mt19937& random) {
  std::vector<rw::Box> boxes = {rw::whole(shape)};
  for (int i = 1; i < n && !shape.empty(); ++i) {
    rw::Box& box = boxes[random() % boxes.size()];
    const size_t d = random() % shape.size();
    const int64_t at =
        static_cast<int64_t>(random() % static_cast<uint64_t>(box.extent[d] + 1));  // 0 and all: empty boxes
    rw::Box rest = box;
    box.extent[d] = at;
    rest.offset[d] += at;
    rest.extent[d] -= at;
    boxes.push_back(rest);
  }
  return boxes;
}

struct Share {
  std::vector<std::vector<char>> storage;
  std::vector<rw::TensorPiece> pieces;
};
// What each of `ranks` ranks holds; every box is with one of them.
inline std::vector<Share> spread(int ranks, unsigned seed, size_t salt) {
  std::mt19937 random(seed);
  std::vector<Share> shares(static_cast<size_t>(ranks));
  const std::vector<rw::TensorInfo> tensors = model();
  for (size_t k = 0; k < tensors.size(); ++k) {
    for (const rw::Box& box : cut(tensors[k].shape, ranks + 1, random)) {
      Share& share = shares[random() % shares.size()];
      share.storage.push_back(fill(tensors[k], box, salt + k));
      share.pieces.push_back({tensors[k].name, tensors[k].dtype, tensors[k].shape, box, share.storage.back().data()});
    }
  }
  return shares;
}

}  // namespace layouts
