// `dserve replay LOG`: asks a fresh scheduler for the plans of a log.
#pragma once

namespace rw {
int dserve_replay(int argc, const char* const* argv);  // exit code; throws Error
}
