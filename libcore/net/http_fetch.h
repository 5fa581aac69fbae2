// One request, one whole reply: for probes and metrics. Blocks. HTTP/1.1 without TLS.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "libcore/net/http_server.h"

namespace rw {

struct HttpFetch {
  std::string method = "GET";
  std::string url;
  HttpHeaders headers = {};
  std::string body = {};
  double connect_timeout_s = 5, timeout_s = 30;  // of all, the connection included
  int64_t max_body_bytes = 64 << 20;
};
struct HttpFetched {
  int status = 0;
  HttpHeaders headers;  // names in lower case
  std::string body;
  const std::string* header(std::string_view lower_case_name) const;  // null when absent
};
// Any status is a reply; a redirection (3xx) is none: Error{runtime} names where it points to. Error{usage} for a bad
// URL, Error{runtime} (host, port, why) when there is no connection, no reply in time, one beyond the bound or none
// that is HTTP.
HttpFetched http_fetch(const HttpFetch& fetch);

// The request as bytes: its head, Host and Content-Length (where there is a body or the method wants one) added.
struct HttpRequestText {
  std::string_view method, target, host;
  const HttpHeaders& headers;
  std::string_view body;
};
std::string http_request_text(const HttpRequestText& request);

}  // namespace rw
