#include "libcore/base/version.h"

namespace rw {
const char* version() { return RW_VERSION; }
}  // namespace rw
