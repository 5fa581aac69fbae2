#include "libcore/tensor/source.h"

#include <algorithm>

namespace rw {

const TensorInfo* TensorSource::find(const std::string& name) const {
  const std::vector<TensorInfo>& all = tensors();
  const auto at = std::lower_bound(all.begin(), all.end(), name, [](const TensorInfo& info, const std::string& wanted) {
    return info.name < wanted;
  });
  return at != all.end() && at->name == name ? &*at : nullptr;
}

}  // namespace rw
