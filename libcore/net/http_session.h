// One connection's side of the protocol, without its socket: bytes in, bytes out, time as an argument. Belongs to one
// i/o thread; the connection (http_io.cpp) only carries out what the session says.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "libcore/net/http_app.h"
#include "libcore/net/http_parser.h"
#include "libcore/net/http_reply.h"

namespace rw {

class HttpSession {
 public:
  // `wake` is called from any thread when advance() has something to do.
  HttpSession(std::shared_ptr<HttpApp> app, std::string peer, std::function<void()> wake, double now);
  ~HttpSession();
  HttpSession(const HttpSession&) = delete;
  HttpSession& operator=(const HttpSession&) = delete;

  void receive(std::string_view bytes, double now);
  void advance(double now);
  std::string_view output() const { return std::string_view(out_).substr(out_at_); }
  void sent(size_t n, double now);
  void peer_ended();        // its last byte has been received
  void gone();              // the connection is broken
  void tick(double now);    // time-outs
  void drain(double now);   // no further request
  void refuse(double now);  // one connection too many

  bool reading() const;  // takes more bytes
  bool idle() const { return state_ == State::head && !started_ && output().empty(); }
  // All is said: the peer should be told so (no more bytes from us) and what it still sends is dropped, as closing at
  // once could take the reply from it (RFC 9112 9.6).
  bool lingering() const { return state_ == State::lingering; }
  bool over() const { return state_ == State::over; }
  bool broken() const { return broken_; }  // over, and what was not sent shall not be

 private:
  enum class State : uint8_t { head, body, replying, flushing, lingering, over };
  size_t parse(std::string_view bytes, double now);
  void on_head(double now);
  void dispatch();
  void next_request(double now);
  void end_with(int status, const std::string& message, double now);
  void end_request();
  void close_after_output(double now);
  void count_body();
  void cut();

  const std::shared_ptr<HttpApp> app_;
  const std::string peer_;
  const std::shared_ptr<const std::function<void()>> wake_;
  HttpParser parser_;
  State state_ = State::head;
  bool started_ = false;  // a byte of the request under way has come
  bool peer_ended_ = false, broken_ = false;
  bool close_ = false;  // after this reply
  double since_s_;      // when this state, or the request's first byte, or the last byte sent, was
  double first_byte_s_ = 0;
  std::string in_, out_;  // bytes not yet parsed; bytes to be sent from out_at_
  size_t out_at_ = 0;
  int64_t body_bytes_ = 0;
  std::shared_ptr<HttpReplyState> reply_;
  std::shared_ptr<HttpReply::Impl> handle_;  // from the head to the handler
};

}  // namespace rw
