// Thousands of requests under way at once to one server, on the calling thread: kept-alive connections, replies handed
// on as they come with the time of their arrival. HTTP/1.1 without TLS.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "libcore/net/response_parser.h"
#include "libcore/net/url.h"

namespace rw {

struct HttpStreamsSpec {
  HttpUrl url;
  double connect_timeout_s = 10;
};

// What happened to a request. Its last report is done, no_connection, closed or bad_reply.
struct HttpStreamReport {
  enum class Kind : uint8_t {
    sent,           // its first byte went out (told again should it go out by a second connection)
    head,           // of the reply: see `reply`
    body,           // a piece of it: `bytes`
    done,           // the reply is complete
    no_connection,  // `bytes` says why, as for the two below
    closed,         // by the server, before the reply was complete
    bad_reply,      // no HTTP
  };
  Kind kind;
  int64_t stream;
  double at_s;  // by now_s()
  std::string_view bytes = {};
  const HttpResponseParser* reply = nullptr;
};

class HttpStreams {
 public:
  // Opens a first connection. Error{runtime} names host, port and why there is none.
  explicit HttpStreams(const HttpStreamsSpec& spec);
  ~HttpStreams();
  // Sees to it that so many connections are idle or on their way, beside those in use; not
  // for a moment after one failed.
  void reserve(int64_t connections);
  // Sends a request (http_request_text) as soon as there is a connection; `stream` is the caller's name for it, which
  // no request under way has. One that a kept-alive connection lost without a byte of a reply (the server closed it
  // just then) goes out a second time by another.
  void send(int64_t stream, std::string request);
  // Gives a request up and closes its connection; no further report.
  void hang_up(int64_t stream);
  // Tells what has happened, waiting for something to happen until now_s() is `until_s`. `tell` may call send and
  // hang_up.
  void wait(double until_s, const std::function<void(const HttpStreamReport&)>& tell);
  int64_t opened() const;  // connections
  int64_t ready() const;   // idle connections

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rw
