#include "libcore/api/health.h"

#include "libcore/api/json_text.h"
#include "libcore/base/error.h"

namespace rw {

const char* engine_state_name(EngineState state) {
  switch (state) {
    case EngineState::loading: return "loading";
    case EngineState::ready: return "ok";
    case EngineState::draining: return "draining";
    case EngineState::stopped: return "stopped";
    case EngineState::failed: return "failed";
  }
  return "unknown";
}

Health health_of(const HealthInputs& in) {
  if (in.loaded && in.state == EngineState::failed) return {503, "failed", in.failure};
  if (in.draining || (in.loaded && in.state == EngineState::draining))
    return {503, "draining", "the server is shutting down; running requests are finished, new ones refused"};
  if (!in.loaded || in.state == EngineState::loading) return {503, "loading", "the model is being loaded"};
  if (in.state == EngineState::stopped) return {503, "stopped", "the engine has been stopped"};
  const double silent_s = in.now - in.stats.heartbeat_s;
  const int64_t work = in.stats.running + in.stats.waiting;
  if (work > 0 && silent_s > in.heartbeat_timeout_s)
    return {503, "stalled",
            fmt::format("the engine has {} sequences and has not finished a step for {:.1f} s (--heartbeat-timeout {})",
                        work, silent_s, in.heartbeat_timeout_s)};
  return {200, "ok", ""};
}

std::string Health::body() const {
  std::string out = "{\"status\":";
  append_json_string(out, state);
  if (!message.empty()) {
    out += ",\"message\":";
    append_json_string(out, message);
  }
  return out + "}";
}

}  // namespace rw
