// HTTP/1.1 replies out of a connection's bytes, piece by piece (RFC 9112). Pure: no socket, no clock; a body is handed
// on as it comes, without a copy.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "libcore/net/http_server.h"

namespace rw {

class HttpResponseParser {
 public:
  explicit HttpResponseParser(int64_t max_header_bytes = 64 << 10) : max_header_bytes_(max_header_bytes) {}
  // more: all bytes are used; head: status and headers are known (those of 1xx are skipped); body: a piece of it;
  // done: the reply is complete; failed: see message(), the connection is of no further use.
  enum class Event : uint8_t { more, head, body, done, failed };
  struct Step {
    Event event;
    size_t taken;           // bytes used from the front; after head and body feed the others, even if none are left
    std::string_view body;  // of Event::body: part of what was fed
  };
  Step feed(std::string_view bytes);
  // The peer has closed: done when that ends the reply, else failed.
  Step finish();
  // Ready for the connection's next reply. A reply to HEAD has no body.
  enum class Body : uint8_t { as_said, none };
  void reset(Body body = Body::as_said);

  bool started() const { return started_; }  // a byte of the reply has come
  bool is_http() const { return is_http_; }  // as far as it has come
  int status() const { return status_; }
  const HttpHeaders& headers() const { return headers_; }             // names in lower case
  const std::string* header(std::string_view lower_case_name) const;  // the first; null when absent
  bool keep_alive() const { return keep_alive_; }                     // after done
  const std::string& message() const { return message_; }

 private:
  enum class State : uint8_t { status, header, length, size, chunk, chunk_end, trailer, close, done, failed };
  Step broken(std::string message, size_t taken);
  Step no_http(std::string_view line, size_t taken);
  bool take_line(std::string_view bytes, size_t& at, std::string_view& line);
  bool read_status(std::string_view line);
  bool read_header(std::string_view line);
  bool read_size(std::string_view line);
  bool decide_body();

  const int64_t max_header_bytes_;
  State state_ = State::status;
  Body wanted_ = Body::as_said;
  bool started_ = false, keep_alive_ = true, http_1_0_ = false, is_http_ = true;
  int status_ = 0;
  uint64_t left_ = 0;         // of the body or the chunk
  int64_t header_bytes_ = 0;  // of the head, a size line or the trailer
  HttpHeaders headers_;
  std::string line_, message_;  // line_: begun, its end has not come
};

}  // namespace rw
