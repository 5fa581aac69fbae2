#include "libcore/api/api_error.h"

#include <algorithm>
#include <cmath>

#include "libcore/api/json_text.h"

namespace rw {
namespace {

void append_or_null(std::string& out, const std::string& text) {
  if (text.empty()) out += "null";
  else append_json_string(out, text);
}

}  // namespace

std::string error_body(const Refusal& r) {
  std::string out = "{\"error\":{\"message\":";
  append_json_string(out, r.message);
  out += ",\"type\":";
  append_json_string(out, r.type);
  out += ",\"param\":";
  append_or_null(out, r.param);
  out += ",\"code\":";
  append_or_null(out, r.code);
  return out + "}}";
}

std::string error_body(int status, const std::string& message) {
  const char* type = status == 429   ? "rate_limit_error"
                     : status == 503 ? "unavailable_error"
                     : status >= 500 ? "server_error"
                                     : "invalid_request_error";
  return error_body({.status = status, .message = message, .type = type});
}

void append_refusal_headers(HttpHeaders& headers, const Refusal& r) {
  if (r.status == 401) headers.emplace_back("www-authenticate", "Bearer");
  if (r.retry_after_s <= 0) return;
  headers.emplace_back("retry-after", fmt::format("{:.0f}", std::max(1.0, std::ceil(r.retry_after_s))));
  headers.emplace_back("retry-after-ms", fmt::format("{:.0f}", std::ceil(1e3 * r.retry_after_s)));
}

}  // namespace rw
