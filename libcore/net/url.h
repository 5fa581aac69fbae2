// Where an HTTP server is.
#pragma once
#include <string>
#include <string_view>

namespace rw {

struct HttpUrl {
  std::string host;  // a name or an address, without brackets
  int port = 80;
  std::string path;  // with the query; empty, or from its '/'
  // "host:port", "[::1]:8000".
  std::string authority() const;
};
// "http://HOST[:PORT][/PATH]". Error{usage} says what is wrong with another one; https is none of ours.
HttpUrl parse_http_url(std::string_view url);

}  // namespace rw
