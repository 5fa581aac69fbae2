// The sizes of a block on one of `tp` tensor-parallel ranks: its own heads, key/value heads and ffn columns.
#pragma once
#include <cstdint>

#include "kernels/ops.h"
#include "libcore/spec/model_spec.h"

namespace rw {

struct BlockShape {
  BlockShape(const ModelSpec& s, int64_t tp);
  NormKind norm;
  bool gated;
  int64_t c, h, hkv, d, f, u, qkv_n;
  float eps, scale;
};

}  // namespace rw
