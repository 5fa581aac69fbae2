// What /health says: whether a request sent now would be served, and if not, why.
#pragma once
#include <string>

#include "libcore/serve/engine.h"

namespace rw {

struct HealthInputs {
  bool loaded = false;
  bool draining = false;
  EngineState state = EngineState::loading;
  std::string failure;  // of the engine
  EngineStats stats;
  double now = 0, heartbeat_timeout_s = 10;
};

struct Health {
  int status;  // 200, 503
  std::string state, message;
  std::string body() const;  // {"status":...,"message":...}
};

Health health_of(const HealthInputs& in);
const char* engine_state_name(EngineState state);

}  // namespace rw
