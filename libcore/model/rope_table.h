// Cosines and sines of the rotary embedding (Su et al. 2021), with the scalings of Llama 3.1 and of linear
// interpolation.
#pragma once
#include <cstdint>
#include <vector>

#include "libcore/device/arena.h"
#include "libcore/model/exec.h"
#include "libcore/spec/model_spec.h"

namespace rw {

class RopeTable {
 public:
  // For positions [0, max_position). Angles are computed in f32 as the reference implementations do. In a
  // counting arena nothing is computed.
  RopeTable(const ModelSpec& spec, int64_t max_position, const Exec& exec, Arena& arena);
  const float* cos() const { return cos_.device; }  // (max_position, D/2), where ops read them
  const float* sin() const { return sin_.device; }
  int64_t max_position() const { return max_position_; }

 private:
  int64_t max_position_;
  Mirrored<float> cos_, sin_;
};

// The D/2 angular frequencies after scaling.
std::vector<float> rope_frequencies(const ModelSpec& spec);

}  // namespace rw
