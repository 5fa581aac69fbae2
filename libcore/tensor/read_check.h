// What every TensorSource checks at its door.
#pragma once
#include <string>

#include "libcore/tensor/source.h"

namespace rw {

// The tensor of this name; Error{input} names the source and the nearest name it has.
const TensorInfo& require_tensor(const TensorSource& source, const std::string& name);
// The same, and that `box` lies in it and it can be read as dst_type (elements.h).
const TensorInfo& check_read(const TensorSource& source, const std::string& name, const Box& box, DType dst_type);

}  // namespace rw
