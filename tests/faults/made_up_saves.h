// The checkpoints that save_writer writes: every value follows from step, version (a step may be saved again with other
// values) and place, so that a reader can tell what it should have found.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "libcore/spec/box.h"

namespace faults {

struct MadeUpTensor {
  std::string name;
  rw::Shape shape;
};
inline const std::vector<MadeUpTensor>& made_up_tensors() {
  static const std::vector<MadeUpTensor> tensors = {
      {"adam.m/w", {37, 19}}, {"b", {101}}, {"large", {1031, 11}}, {"w", {37, 19}}};
  return tensors;
}

inline std::vector<float> made_up_values(const MadeUpTensor& tensor, int64_t step, int64_t version) {
  std::vector<float> values(static_cast<size_t>(rw::n_elements(tensor.shape)));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(i + tensor.name.size()) + 0.25f * static_cast<float>(step) +
                4096 * static_cast<float>(version);
  return values;
}

}  // namespace faults
