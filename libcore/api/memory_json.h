// Where an engine's memory is, as JSON: /debug/memory, and the dump after a failure.
#pragma once
#include <string>

#include "libcore/serve/engine.h"
#include "libcore/telemetry/memory_ring.h"

namespace rw {

// An object; now: now_s().
std::string memory_json(const EngineMemory& memory, double now);

// What the ring keeps once a second.
MemorySnapshot memory_snapshot(const EngineMemory& memory);
// The last half hour, an object.
std::string memory_history(const MemoryRing& ring, double now);

}  // namespace rw
