#include "libcore/comm/host_name.h"

#include <unistd.h>

namespace rw {

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "unknown-host";
}

}  // namespace rw
