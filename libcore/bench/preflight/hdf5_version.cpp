#include "libcore/bench/preflight/hdf5_version.h"

#include <fmt/format.h>
#include <hdf5.h>

namespace rw {

std::string hdf5_version() {
  unsigned major = 0, minor = 0, release = 0;
  return H5get_libversion(&major, &minor, &release) >= 0 ? fmt::format("{}.{}.{}", major, minor, release) : "";
}

}  // namespace rw
