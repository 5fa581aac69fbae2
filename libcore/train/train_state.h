// What a checkpoint holds of a training run besides identity, and how the flat buffers become named pieces and come
// back.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "libcore/base/json.h"
#include "libcore/tensor/source.h"
#include "libcore/train/step.h"

namespace rw {

struct TrainState {
  int64_t step = 0;     // optimizer steps asked for so far, skipped ones included
  int64_t samples = 0;  // global samples consumed: the data position
  int64_t tokens = 0;
  int64_t updates = 0;  // AdamW's own count
  int64_t skipped = 0;
  int64_t seq_len = 0, seed = 0, global_batch = 0;
  std::string data_fingerprint;
  std::string loss_scale, guard;  // their own JSON; empty in older checkpoints
};
Json state_json(const TrainState& state);
TrainState parse_state(const Json& json, const std::string& where);

// This rank's pieces of weights and moments: what it alone owns, shared out by rows among the ranks that hold the same,
// so that every element is written once and the writing is spread.
std::vector<TensorPiece> checkpoint_pieces(TrainStep& step);
// The same of the gradients that lie in step.grads() (under the parameters' names).
std::vector<TensorPiece> gradient_pieces(TrainStep& step);
// Reads weights, and the moments where asked for; tensors may come from any layout.
enum class Load { weights, weights_and_moments };
void load_params(TrainStep& step, const TensorSource& source, Load what);
// The (tensor, box) list that load_params() reads of weights and moments.
std::vector<std::pair<std::string, Box>> boxes_to_load(TrainStep& step);
// Initial values, the same in every layout.
void init_weights(TrainStep& step, uint64_t seed);

}  // namespace rw
