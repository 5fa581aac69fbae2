// What a checkpoint holds of a training run besides identity, and how the flat buffers become named pieces and come
// back.
#pragma once
#include <cstdint>
#include <string>
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
};
Json state_json(const TrainState& state);
TrainState parse_state(const Json& json, const std::string& where);

// This rank's pieces of weights and moments: rows [r/n, (r+1)/n) of every parameter, so that the writing is shared.
std::vector<TensorPiece> checkpoint_pieces(TrainStep& step, int rank, int n_ranks);
// Reads weights, and the moments where `with_moments`; tensors may come from any layout.
enum class Load { weights, weights_and_moments };
void load_params(TrainStep& step, const TensorSource& source, Load what);

}  // namespace rw
