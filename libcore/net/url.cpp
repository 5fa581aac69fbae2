#include "libcore/net/url.h"

#include <algorithm>
#include <charconv>

#include "libcore/base/error.h"

namespace rw {
namespace {

[[noreturn]] void wrong(std::string_view url, std::string_view why) {
  fail(ErrorKind::usage, "URL \"{}\": expected http://HOST[:PORT][/PATH], {}", url.substr(0, 200), why);
}

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool starts_with_scheme(std::string_view url, std::string_view scheme) {
  return url.size() >= scheme.size() &&
         std::equal(scheme.begin(), scheme.end(), url.begin(), [](char a, char b) { return a == lower(b); });
}

int port_of(std::string_view text, std::string_view url) {
  int port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size() || port < 1 || port > 65535)
    wrong(url, fmt::format("found the port \"{}\"", text));
  return port;
}

}  // namespace

std::string HttpUrl::authority() const {
  const bool bracketed = host.find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}", bracketed ? "[" : "", host, bracketed ? "]" : "", port);
}

HttpUrl parse_http_url(std::string_view url) {
  constexpr std::string_view kScheme = "http://";
  if (starts_with_scheme(url, "https://"))
    fail(ErrorKind::usage,
         "URL \"{}\": TLS is not spoken here; put a local proxy that ends TLS before the server and name its http:// "
         "address",
         url.substr(0, 200));
  if (std::any_of(url.begin(), url.end(), [](char c) { return static_cast<unsigned char>(c) <= ' ' || c == 127; }))
    wrong(url, "found a blank or a control character in it");
  if (!starts_with_scheme(url, kScheme)) wrong(url, "found another beginning");
  const std::string_view rest = url.substr(kScheme.size());
  const size_t end = std::min(rest.find_first_of("/?#"), rest.size());
  std::string_view place = rest.substr(0, end);
  HttpUrl out;
  const std::string_view path = rest.substr(end, rest.find('#') - end);
  if (!path.empty()) out.path = path.front() == '/' ? std::string(path) : "/" + std::string(path);
  if (place.find('@') != std::string_view::npos) wrong(url, "found a user's name; pass credentials as an API key");
  if (place.starts_with('[')) {
    const size_t close = place.find(']');
    if (close == std::string_view::npos) wrong(url, "found no ']' after the address");
    out.host = place.substr(1, close - 1);
    place.remove_prefix(close + 1);
    if (!place.empty() && place.front() != ':') wrong(url, "found no ':' after the ']'");
  } else {
    const size_t colon = std::min(place.find(':'), place.size());
    out.host = place.substr(0, colon);
    place.remove_prefix(colon);
    if (std::count(place.begin(), place.end(), ':') > 1) wrong(url, "an IPv6 address is written [::1]");
  }
  if (out.host.empty()) wrong(url, "found no host");
  if (!place.empty()) out.port = port_of(place.substr(1), url);
  return out;
}

}  // namespace rw
