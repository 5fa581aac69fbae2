// What a layer needs to run: the op table, the stream, the type of the activations, and scratch for the ops.
#pragma once
#include <cstdint>

#include "libcore/device/device.h"

namespace rw {

struct Exec {
  const Ops& ops;
  Stream stream;
  DType t;                    // of activations and products: f32 or bf16
  void* workspace = nullptr;  // as planned by block_workspace_bytes (block.h)
  // Serving: a row's bits depend neither on its batch mates nor on how its prefill was cut.
  bool deterministic = false;
};

}  // namespace rw
