// What a rank of a layout writes in a checkpoint, known without ranks, without memory and without a step: the trainer's
// own bookkeeping on the meta device.
#pragma once
#include <cstdint>
#include <vector>

#include "libcore/spec/layout.h"
#include "libcore/tensor/source.h"

namespace rw {

// What checkpoint_pieces() (train_state.h) gives on this rank, in its order; `data` is null. `layout` is settled for
// this model; `ranks_per_node` counts where zero_group is node.
struct LayoutPlace {
  const ModelSpec& model;
  const Layout& layout;
  int64_t ranks_per_node = 1;
  int64_t rank = 0;
};
std::vector<TensorPiece> layout_pieces(const LayoutPlace& place);

}  // namespace rw
