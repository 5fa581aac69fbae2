// `dserve --model M`: serves a model over HTTP until it is told to stop.
#pragma once

namespace rw {
int dserve_serve(int argc, const char* const* argv);  // exit code; throws Error
}
