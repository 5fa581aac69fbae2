// The toolkit's version, "0.1.0".
#pragma once

namespace rw {
const char* version();
}
