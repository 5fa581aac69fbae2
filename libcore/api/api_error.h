// A refusal as clients of the API see it: an HTTP status and OpenAI's error object.
#pragma once
#include <string>

#include "libcore/base/error.h"
#include "libcore/net/http_server.h"

namespace rw {

struct Refusal {
  int status = 400;
  std::string message = {};                    // what was expected, found, what to do
  std::string type = "invalid_request_error";  // "rate_limit_error", "unavailable_error", "server_error"
  std::string param = {};                      // the field's name ("messages[2].content"); empty: null
  std::string code = {};                       // "model_not_found"; empty: null
  double retry_after_s = 0;                    // 0: not said
};

// Thrown by whatever reads a request; for the rest of the system an Error{input}.
class ApiError : public Error {
 public:
  explicit ApiError(Refusal refusal) : Error(ErrorKind::input, refusal.message), refusal_(std::move(refusal)) {}
  const Refusal& refusal() const { return refusal_; }

 private:
  Refusal refusal_;
};

// refuse("temperature", "expected {}, found {}", ...): 400, the message begins with the field's name.
template <typename... Args>
[[noreturn]] void refuse(const std::string& param, fmt::format_string<Args...> format, Args&&... args) {
  const std::string text = fmt::format(format, std::forward<Args>(args)...);
  throw ApiError({.message = param.empty() ? text : param + ": " + text, .param = param});
}

// {"error":{"message":...,"type":...,"param":...,"code":...}}
std::string error_body(const Refusal& refusal);
// For an error that has a status alone (the HTTP server's own).
std::string error_body(int status, const std::string& message);
// Retry-After in whole seconds, retry-after-ms; WWW-Authenticate with a 401.
void append_refusal_headers(HttpHeaders& headers, const Refusal& refusal);

}  // namespace rw
