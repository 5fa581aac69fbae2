// `dserve generate`: continues one prompt.
#pragma once

namespace rw {
int dserve_generate(int argc, const char* const* argv);  // exit code; throws Error
}
