// All routes of the API.
#pragma once
#include <functional>

#include "libcore/api/api_state.h"
#include "libcore/api/exchange.h"
#include "libcore/net/http_server.h"

namespace rw {

// A handler replies, now or later, or throws an ApiError that becomes the reply.
using ApiHandler = void (*)(ApiState&, Exchange&);

void post_completions(ApiState& state, Exchange& x);
void post_chat_completions(ApiState& state, Exchange& x);
void post_tokenize(ApiState& state, Exchange& x);
void post_detokenize(ApiState& state, Exchange& x);
void post_apply_template(ApiState& state, Exchange& x);
void get_models(ApiState& state, Exchange& x);
void get_model(ApiState& state, Exchange& x);  // /v1/models/{id}
void get_health(ApiState& state, Exchange& x);
void get_ping(ApiState& state, Exchange& x);
void get_version(ApiState& state, Exchange& x);
void get_load(ApiState& state, Exchange& x);
void get_metrics(ApiState& state, Exchange& x);
void get_debug_memory(ApiState& state, Exchange& x);
void refuse_path(ApiState& state, Exchange& x);  // 404

// Routes, error bodies and, with spec.api_key, the gate before all but /health and /ping. Both outlive the server's
// run.
void add_routes(HttpServer& server, ApiState& state);

// Whether `header` (Authorization) brings the key; the time this takes does not tell how much of it is right.
bool right_api_key(const std::string* header, const std::string& key);

}  // namespace rw
