// One request after the other out of a connection's bytes, piece by piece. Pure: no socket, no clock.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "libcore/net/http_server.h"

namespace rw {

class HttpParser {
 public:
  HttpParser(int64_t max_header_bytes, int64_t max_body_bytes);
  ~HttpParser();
  // more: all of `bytes` that can be used has been; head: the header is complete (told once a request, before its
  // body); done: the request is complete; failed: see status() and message(), the connection is of no further use.
  enum class Event : uint8_t { more, head, done, failed };
  struct Step {
    Event event;
    size_t taken;  // bytes used from the front; the others must be given again, with what follows them
  };
  Step feed(std::string_view bytes);
  bool started() const;  // a byte of the request has been taken or seen
  HttpRequest& request();
  // Once the head is known:
  bool keep_alive() const;
  bool http_1_0() const;
  bool expects_continue() const;
  bool body_follows() const;
  // After Event::failed: 400, 413, 417, 431 or 501 (RFC 9110, 9112).
  int status() const;
  const std::string& message() const;
  // Ready for the connection's next request.
  void reset();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Undoes percent-encoding; false on a bad escape or an encoded NUL.
bool decode_path(std::string_view raw, std::string& decoded);

}  // namespace rw
