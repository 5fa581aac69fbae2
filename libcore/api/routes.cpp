#include "libcore/api/routes.h"

#include <fmt/core.h>

#include <algorithm>
#include <exception>
#include <new>
#include <string_view>

#include "libcore/base/log.h"

namespace rw {
namespace {

struct Route {
  const char* method;
  const char* path;
  HttpWhere where;
  ApiHandler run;
};

constexpr Route kRoutes[] = {
    {"POST", "/v1/completions", HttpWhere::worker, post_completions},
    {"POST", "/v1/chat/completions", HttpWhere::worker, post_chat_completions},
    {"POST", "/tokenize", HttpWhere::worker, post_tokenize},
    {"POST", "/v1/tokenize", HttpWhere::worker, post_tokenize},
    {"POST", "/detokenize", HttpWhere::worker, post_detokenize},
    {"POST", "/v1/detokenize", HttpWhere::worker, post_detokenize},
    {"POST", "/apply-template", HttpWhere::worker, post_apply_template},
    {"POST", "/v1/apply-template", HttpWhere::worker, post_apply_template},
    {"GET", "/v1/models", HttpWhere::io, get_models},
    {"GET", "/v1/models/*", HttpWhere::io, get_model},
    {"GET", "/health", HttpWhere::io, get_health},
    {"GET", "/ping", HttpWhere::io, get_ping},
    {"GET", "/version", HttpWhere::io, get_version},
    {"GET", "/load", HttpWhere::io, get_load},
    {"GET", "/metrics", HttpWhere::io, get_metrics},
    {"GET", "/debug/memory", HttpWhere::worker, get_debug_memory},
    // All else, here and not by the HTTP server, so that it has a request id and is counted.
    {"GET", "/*", HttpWhere::io, refuse_path},
    {"POST", "/*", HttpWhere::io, refuse_path},
    {"PUT", "/*", HttpWhere::io, refuse_path},
    {"PATCH", "/*", HttpWhere::io, refuse_path},
    {"DELETE", "/*", HttpWhere::io, refuse_path},
};

// What a handler throws is this request's reply, and nobody else's trouble.
void run_route(const Route& route, ApiState& state, const HttpRequest& request, const HttpReply& reply) {
  const char* path = route.path;
  Exchange x(request, reply, [&state, path](int status) { state.metrics.http(path, status); });
  try {
    route.run(state, x);
  } catch (const ApiError& e) {
    x.refuse(e.refusal());
  } catch (const std::bad_alloc&) {
    x.refuse({.status = 503,
              .message = "not enough memory for this request",
              .type = "unavailable_error",
              .retry_after_s = 1});
  } catch (const std::exception& e) {
    log_error("request {}: {}", x.id, e.what());
    x.refuse({.status = 500,
              .message = "internal error; the server's log has it under this request's id",
              .type = "server_error"});
  }
}

bool needs_key(std::string_view path) { return path != "/health" && path != "/ping"; }

}  // namespace

bool right_api_key(const std::string* header, const std::string& key) {
  constexpr std::string_view kScheme = "bearer ";
  if (header == nullptr || header->size() < kScheme.size()) return false;
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  for (size_t i = 0; i < kScheme.size(); ++i)
    if (lower((*header)[i]) != kScheme[i]) return false;
  const std::string_view found = std::string_view(*header).substr(kScheme.size());
  // Every byte of the key is looked at whatever was found.
  unsigned difference = found.size() == key.size() ? 0U : 1U;
  for (size_t i = 0; i < key.size(); ++i) {
    const char c = i < found.size() ? found[i] : '\0';
    difference |= static_cast<unsigned char>(c) ^ static_cast<unsigned char>(key[i]);
  }
  return difference == 0;
}

void add_routes(HttpServer& server, ApiState& state) {
  for (const Route& route : kRoutes)
    server.route(route.method, route.path, route.where,
                 [&route, &state](const HttpRequest& request, const HttpReply& reply) {
                   run_route(route, state, request, reply);
                 });
  server.refuse_with([](int status, const std::string& message) { return error_body(status, message); });
  if (state.spec.api_key.empty()) return;
  server.before([&state](const HttpRequest& request, const HttpReply& reply) {
    if (!needs_key(request.path) || right_api_key(request.header("authorization"), state.spec.api_key)) return true;
    Exchange x(request, reply, [&state](int status) { state.metrics.http("none", status); });
    x.refuse({.status = 401,
              .message = "expected the header \"Authorization: Bearer KEY\" with this server's API key",
              .code = "invalid_api_key"});
    return false;
  });
}

}  // namespace rw
