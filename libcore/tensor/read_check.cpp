#include "libcore/tensor/read_check.h"

#include "libcore/base/error.h"
#include "libcore/tensor/elements.h"

namespace rw {

const TensorInfo& require_tensor(const TensorSource& source, const std::string& name) {
  const TensorInfo* info = source.find(name);
  if (info != nullptr) return *info;
  std::vector<std::string> names;
  for (const TensorInfo& t : source.tensors()) names.push_back(t.name);
  const std::string near = nearest(name, names);
  fail(ErrorKind::input, "{}: expected tensor {}, found none of that name among {}{}", source.where(), name,
       names.size(), near.empty() ? "" : "; the nearest is " + near);
}

const TensorInfo& check_read(const TensorSource& source, const std::string& name, const Box& box, DType dst_type) {
  const TensorInfo& info = require_tensor(source, name);
  if (box.offset.size() != info.shape.size() || box.extent.size() != info.shape.size() || !contains(info.shape, box)) {
    fail(ErrorKind::input, "{}: tensor {}: expected a shape that holds {}, found {}", source.where(), name,
         box_text(box), shape_text(info.shape));
  }
  if (!can_read_as(info.dtype, dst_type)) {
    fail(ErrorKind::input, "{}: tensor {}: expected {}, found {}, which does not convert to it", source.where(), name,
         dtype_name(dst_type), dtype_name(info.dtype));
  }
  return info;
}

}  // namespace rw
