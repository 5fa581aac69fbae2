// How the weights of linear layers are stored in serving.
#pragma once
#include <cstdint>

#include "libcore/model/linear.h"

namespace rw {

struct WeightQuant {
  WeightFormat format = WeightFormat::plain;
  int64_t group = 0;  // weights that share a scale
};

}  // namespace rw
