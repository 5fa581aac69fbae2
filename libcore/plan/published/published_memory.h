// Memory of published runs in closed form, by trainer: what these keep is not what dtrain keeps, so MemoryModel does
// not price them.
//
// A rank's peak is its states, the activations of the micro-batches in flight, what is live on top of them (a layer
// that is made again, or the logits) and what the metric counts beside tensors:
//
//   states       bytes of weights and gradients, and of the optimizer's part cut by ZeRO (Rajbhandari et al. 2020)
//   activations  Korthikanti et al. 2022, table 2, or what a layer with fused attention keeps: the same list of tensors
//                without scores and dropout masks
//   in flight    stage i of p keeps min(m, p - i) micro-batches; interleaved (p - i - 1) 2 + (v - 1) p + 1 chunks
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "libcore/plan/published/published_table.h"

namespace rw {

struct ActivationTechnique {
  bool sp = false;
  enum class Kept { all, selective, input } kept = Kept::all;  // input: full recomputation
};
struct LayerSize {
  double seq = 0, micro_batch = 0, width = 0, heads = 0, tp = 1;
};
// Bytes of 16-bit activations that a layer keeps (Korthikanti et al. 2022, table 2): GELU of four widths, dropout,
// unfused attention.
double korthikanti_layer_bytes(const LayerSize& size, const ActivationTechnique& technique);

struct PublishedMemory {
  int64_t line = 0;  // of the table
  std::string source, model_name, trainer, device;
  std::string excluded;  // why its memory is not predicted; empty: it is
  double reported = 0;   // GiB; 0: the run died of it
  double states = 0;     // GiB, of the rank with the most
  double predicted = 0;  // GiB
  bool out_of_memory() const { return reported == 0; }
};
// Rows that report memory, and those that ran out of it.
std::vector<PublishedMemory> published_memory(const std::filesystem::path& table);

}  // namespace rw
