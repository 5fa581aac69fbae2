// Everything that is known of an engine that has failed, for whoever looks at it afterwards.
#pragma once
#include <string>

#include "libcore/serve/engine.h"
#include "libcore/telemetry/memory_ring.h"

namespace rw {

// {"time", "version", "state", "failure", "stats": {...}, "memory": {...}, "history": {...}}; ring: null leaves out the
// history.
std::string state_dump(const Engine& engine, const MemoryRing* ring, double now);

}  // namespace rw
