// `dtrain prepare`: text -> token file.
#pragma once

namespace rw {
int dtrain_prepare(int argc, const char* const* argv);  // argv[0] is the tool's name; exit code; throws Error
}
