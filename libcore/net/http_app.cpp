#include "libcore/net/http_app.h"

#include <array>
#include <charconv>
#include <ctime>
#include <exception>
#include <nlohmann/json.hpp>

#include "libcore/base/json.h"
#include "libcore/base/log.h"
#include "libcore/net/http_reply.h"

namespace rw {
namespace {

std::string_view reason(int status) {
  switch (status) {
    case 200: return "OK";
    case 201: return "Created";
    case 202: return "Accepted";
    case 204: return "No Content";
    case 304: return "Not Modified";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 413: return "Content Too Large";
    case 417: return "Expectation Failed";
    case 422: return "Unprocessable Content";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 502: return "Bad Gateway";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    default: return "Status";
  }
}

template <typename Int>
void append_number(std::string& out, Int value) {
  std::array<char, 24> digits;
  out.append(digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr);
}

// RFC 9110 5.6.7; its names are English in every locale.
void append_date(std::string& out) {
  static constexpr std::array<const char*, 7> kDays{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr std::array<const char*, 12> kMonths{"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                       "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const std::time_t now = std::time(nullptr);
  std::tm t{};
  gmtime_r(&now, &t);
  out +=
      fmt::format("date: {}, {:02} {} {} {:02}:{:02}:{:02} GMT\r\n", kDays[static_cast<size_t>(t.tm_wday)], t.tm_mday,
                  kMonths[static_cast<size_t>(t.tm_mon)], t.tm_year + 1900, t.tm_hour, t.tm_min, t.tm_sec);
}

// A value may hold what a client sent: a line break in it must not become a header of its own.
void append_clean(std::string& out, std::string_view value) {
  for (char c : value) out.push_back(c == '\r' || c == '\n' || c == '\0' ? ' ' : c);
}

}  // namespace

void append_head(std::string& out, const HttpHead& head) {
  out += "HTTP/1.1 ";
  append_number(out, head.status);
  out.push_back(' ');
  out += reason(head.status);
  out += "\r\nserver: rankwright\r\n";
  append_date(out);
  if (!head.content_type.empty()) {
    out += "content-type: ";
    append_clean(out, head.content_type);
    out += "\r\n";
  }
  if (head.chunked) out += "transfer-encoding: chunked\r\n";
  if (head.content_length >= 0) {
    out += "content-length: ";
    append_number(out, head.content_length);
    out += "\r\n";
  }
  if (head.close) out += "connection: close\r\n";
  else if (head.keep_alive_said) out += "connection: keep-alive\r\n";
  if (head.headers != nullptr)
    for (const auto& [name, value] : *head.headers) {
      append_clean(out, name);
      out += ": ";
      append_clean(out, value);
      out += "\r\n";
    }
  out += "\r\n";
}

void HttpRoutes::add(std::string_view method, std::string_view path, HttpRoute route) {
  const bool below = path.ends_with("/*");
  Methods& methods = below ? below_[std::string(path.substr(0, path.size() - 1))] : exact_[std::string(path)];
  methods.insert_or_assign(std::string(method), std::move(route));
}

HttpRoutes::Found HttpRoutes::find(std::string_view method, const std::string& path) const {
  const Methods* methods = nullptr;
  if (const auto at = exact_.find(path); at != exact_.end()) methods = &at->second;
  for (size_t slash = path.rfind('/'); methods == nullptr && slash != std::string::npos;
       slash = slash == 0 ? std::string::npos : path.rfind('/', slash - 1))
    if (const auto at = below_.find(std::string_view(path).substr(0, slash + 1)); at != below_.end())
      methods = &at->second;
  Found found;
  if (methods == nullptr) return found;
  const auto get = methods->find("GET");
  const auto add_name = [&](std::string_view name) {
    if (!found.allow.empty()) found.allow += ", ";
    found.allow += name;
  };
  for (const auto& [name, route] : *methods) {
    add_name(name);
    if (name == method) found.route = &route;
  }
  if (get != methods->end() && !methods->contains("HEAD")) {
    add_name("HEAD");
    if (method == "HEAD") found.route = &get->second;
  }
  if (!methods->contains("OPTIONS")) add_name("OPTIONS");
  return found;
}

std::string default_refusal(int status, const std::string& message) {
  const Json error{{"message", message},
                   {"type", status < 500 ? "invalid_request_error" : "server_error"},
                   {"param", nullptr},
                   {"code", status}};
  return Json{{"error", error}}.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void run_handler(const HttpRoute& route, const HttpRequest& request, const std::shared_ptr<HttpReply::Impl>& reply) {
  try {
    route.handler(request, HttpReply(reply));
  } catch (const std::exception& error) {
    log_error("{} {}: {}", request.method, request.path, error.what());
    reply->state->fail(500, "the server failed to handle the request");
  }
}

}  // namespace rw
