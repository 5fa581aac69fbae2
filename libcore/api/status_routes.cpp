// The routes that only look: models, health, metrics, memory.
#include <string_view>

#include "libcore/api/json_text.h"
#include "libcore/api/memory_json.h"
#include "libcore/api/routes.h"
#include "libcore/base/clock.h"
#include "libcore/base/version.h"

namespace rw {
namespace {

constexpr std::string_view kModelsPath = "/v1/models/";

void append_model(std::string& out, const ServedModel& m) {
  out += "{\"id\":";
  append_json_string(out, m.name);
  out += ",\"object\":\"model\",\"created\":";
  append_json_int(out, m.created);
  out += ",\"owned_by\":\"rankwright\",\"root\":";  // vLLM's benchmark reads root
  append_json_string(out, m.path.empty() ? m.name : m.path);
  out += ",\"parent\":null,\"max_model_len\":";
  append_json_int(out, m.max_model_len);
  out += ",\"identity\":";
  append_json_string(out, m.identity);
  out += '}';
}

}  // namespace

void get_models(ApiState& state, Exchange& x) {
  std::string out = "{\"object\":\"list\",\"data\":[";
  append_model(out, state.require_loaded().model);
  x.send(200, out + "]}");
}

void get_model(ApiState& state, Exchange& x) {
  const ServedModel& model = state.require_loaded().model;
  const std::string name = x.request.path.substr(std::min(kModelsPath.size(), x.request.path.size()));
  if (name != model.name)
    throw ApiError({.status = 404,
                    .message = "the model does not exist; this server has \"" + model.name + "\"",
                    .param = "model",
                    .code = "model_not_found"});
  std::string out;
  append_model(out, model);
  x.send(200, std::move(out));
}

void get_health(ApiState& state, Exchange& x) {
  const Health health = state.health(now_s());
  x.send(health.status, health.body());
}

// A load balancer's question: the same answer without a body to read.
void get_ping(ApiState& state, Exchange& x) { x.send(state.health(now_s()).status, ""); }

void get_version(ApiState&, Exchange& x) {
  std::string out = "{\"version\":";
  append_json_string(out, version());
  x.send(200, out + "}");
}

void get_load(ApiState& state, Exchange& x) {
  const EngineStats stats = state.require_loaded().engine->stats();
  std::string out = "{\"server_load\":";  // vLLM's name for requests under way
  append_json_int(out, state.live.count());
  out += ",\"running\":";
  append_json_int(out, stats.running);
  out += ",\"waiting\":";
  append_json_int(out, stats.waiting);
  x.send(200, out + "}");
}

void get_metrics(ApiState& state, Exchange& x) {
  x.send(200, state.metrics_text(now_s()), "text/plain; version=0.0.4; charset=utf-8");
}

void refuse_path(ApiState&, Exchange& x) {
  x.refuse({.status = 404, .message = "there is nothing under this path; /v1/models says what is served"});
}

void get_debug_memory(ApiState& state, Exchange& x) {
  const double now = now_s();
  std::string out = "{\"now\":" + memory_json(state.require_loaded().engine->memory(), now) + ",\"history\":";
  out += memory_history(state.memory_ring, now);
  x.send(200, out + "}");
}

}  // namespace rw
