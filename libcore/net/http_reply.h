// The state of one reply, shared by the handler's side (any thread) and the connection's session (its i/o thread).
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "libcore/net/http_app.h"

namespace rw {

// How the request wants its reply.
struct HttpReplyForm {
  bool head_only = false;  // HEAD
  bool http_1_0 = false;   // no chunks: a stream ends with the connection
  bool keep_alive = true;
};

class HttpReplyState {
 public:
  // `wake` tells the session, from any thread, that there is something to take.
  HttpReplyState(std::shared_ptr<const HttpApp> app, HttpReplyForm form,
                 std::shared_ptr<const std::function<void()>> wake)
      : app_(std::move(app)), form_(form), wake_(std::move(wake)) {}

  // The handler's side: see HttpReply.
  void send(int status, std::string_view body, std::string_view content_type, const HttpHeaders& headers);
  void begin(int status, std::string_view content_type, const HttpHeaders& headers);
  void write(std::string_view chunk);
  void finish();
  bool gone() const;
  void on_gone(std::function<void()> tell);
  // One of the server's own errors; cuts off a stream that has begun, does nothing when the reply is complete.
  void fail(int status, const std::string& message, const HttpHeaders& headers = {});
  // Nobody can reply any more.
  void abandoned();

  // The session's side.
  struct Taken {
    bool finished, close;
  };
  bool cut() const;  // the handler's side has given the peer up
  // Moves what is ready to `out`, which is empty; wakes nobody until then.
  Taken take(std::string& out);
  void set_in_flight(size_t bytes);  // taken and not yet sent
  void peer_gone();                  // tells on_gone

 private:
  enum class Phase : uint8_t { waiting, streaming, finished };
  void wake(std::unique_lock<std::mutex> lock);  // unlocks
  bool begin_locked(int status, std::string_view content_type, const HttpHeaders& headers, int64_t length);

  const std::shared_ptr<const HttpApp> app_;
  const HttpReplyForm form_;
  const std::shared_ptr<const std::function<void()>> wake_;
  mutable std::mutex mutex_;
  Phase phase_ = Phase::waiting;
  bool gone_ = false, cut_ = false, close_ = false, chunked_ = false, bodyless_ = false;
  bool woken_ = true;  // the session takes by itself when it has called the handler
  std::string ready_;
  size_t in_flight_ = 0;
  std::function<void()> tell_;
};

// The last copy of an HttpReply ends here.
struct HttpReply::Impl {
  explicit Impl(std::shared_ptr<HttpReplyState> reply) : state(std::move(reply)) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() { state->abandoned(); }
  const std::shared_ptr<HttpReplyState> state;
};

}  // namespace rw
