#include "libcore/model/exec.h"

#include <stdexcept>

#include "libcore/base/error.h"

namespace rw {

const Ops& this_cpu_ops() {
  try {
    return cpu_ops();
  } catch (const std::invalid_argument& e) {
    fail(ErrorKind::usage, "{}", e.what());
  }
}

}  // namespace rw
