#include "libcore/net/http_reply.h"

#include <array>
#include <charconv>
#include <utility>

#include "libcore/base/check.h"

namespace rw {

bool HttpReplyState::begin_locked(int status, std::string_view content_type, const HttpHeaders& headers,
                                  int64_t length) {
  if (gone_) return false;
  CHECK(phase_ == Phase::waiting, "a reply is begun twice (status %d)", status);
  // RFC 9110 6.4.1: these have no body, whatever the handler says; a HEAD reply has only its headers.
  const bool no_content = status / 100 == 1 || status == 204 || status == 304;
  bodyless_ = no_content || form_.head_only;
  chunked_ = length < 0 && !no_content && !form_.http_1_0;
  close_ = !form_.keep_alive || app_->draining || (length < 0 && form_.http_1_0 && !bodyless_);
  append_head(ready_, {.status = status,
                       .content_type = no_content ? std::string_view() : content_type,
                       .content_length = no_content ? -1 : length,
                       .chunked = chunked_,
                       .close = close_,
                       .keep_alive_said = form_.http_1_0,
                       .headers = &headers});
  return true;
}

void HttpReplyState::wake(std::unique_lock<std::mutex> lock) {
  const bool wake = !std::exchange(woken_, true);
  // What on_gone has captured may be the last copy of a reply, and ends outside the lock.
  const std::function<void()> unneeded = phase_ == Phase::finished ? std::exchange(tell_, nullptr) : nullptr;
  lock.unlock();
  if (wake) (*wake_)();
}

void HttpReplyState::send(int status, std::string_view body, std::string_view content_type,
                          const HttpHeaders& headers) {
  std::unique_lock lock(mutex_);
  if (!begin_locked(status, content_type, headers, static_cast<int64_t>(body.size()))) return;
  if (!bodyless_) ready_ += body;
  phase_ = Phase::finished;
  wake(std::move(lock));
}

void HttpReplyState::begin(int status, std::string_view content_type, const HttpHeaders& headers) {
  std::unique_lock lock(mutex_);
  if (!begin_locked(status, content_type, headers, -1)) return;
  phase_ = Phase::streaming;
  wake(std::move(lock));
}

void HttpReplyState::write(std::string_view chunk) {
  std::unique_lock lock(mutex_);
  if (gone_) return;
  CHECK(phase_ == Phase::streaming, "a chunk of %zu bytes outside begin and finish", chunk.size());
  if (bodyless_ || chunk.empty()) return;
  if (static_cast<int64_t>(ready_.size() + in_flight_) > app_->spec.max_backlog_bytes) {
    gone_ = cut_ = true;
    woken_ = false;  // the session looks even when it has enough to send
    ready_ = {};
  } else if (chunked_) {
    std::array<char, 20> size;
    char* end = std::to_chars(size.data(), size.data() + size.size(), chunk.size(), 16).ptr;
    ready_.append(size.data(), end);
    ready_ += "\r\n";
    ready_ += chunk;
    ready_ += "\r\n";
  } else {
    ready_ += chunk;
  }
  wake(std::move(lock));
}

void HttpReplyState::finish() {
  std::unique_lock lock(mutex_);
  if (gone_) return;
  CHECK(phase_ == Phase::streaming, "a stream is finished that was not begun");
  if (chunked_ && !bodyless_) ready_ += "0\r\n\r\n";
  phase_ = Phase::finished;
  wake(std::move(lock));
}

bool HttpReplyState::gone() const {
  const std::lock_guard lock(mutex_);
  return gone_;
}

void HttpReplyState::on_gone(std::function<void()> tell) {
  {
    const std::lock_guard lock(mutex_);
    if (!gone_) {
      if (phase_ != Phase::finished) tell_.swap(tell);
      return;
    }
  }
  tell();
}

void HttpReplyState::fail(int status, const std::string& message, const HttpHeaders& headers) {
  std::string body = app_->refuse(status, message);
  std::unique_lock lock(mutex_);
  if (gone_ || phase_ == Phase::finished) return;
  if (phase_ == Phase::streaming) {
    gone_ = cut_ = true;
    woken_ = false;
  } else {
    begin_locked(status, "application/json", headers, static_cast<int64_t>(body.size()));
    if (!bodyless_) ready_ += body;
    phase_ = Phase::finished;
  }
  wake(std::move(lock));
}

void HttpReplyState::abandoned() {
  {
    const std::lock_guard lock(mutex_);
    if (gone_ || phase_ == Phase::finished) return;
  }
  fail(500, "the server gave no reply");
}

HttpReplyState::Taken HttpReplyState::take(std::string& out) {
  const std::lock_guard lock(mutex_);
  woken_ = false;
  out.swap(ready_);
  in_flight_ = out.size();
  return {.finished = phase_ == Phase::finished, .close = close_};
}

bool HttpReplyState::cut() const {
  const std::lock_guard lock(mutex_);
  return cut_;
}

void HttpReplyState::set_in_flight(size_t bytes) {
  const std::lock_guard lock(mutex_);
  in_flight_ = bytes;
}

void HttpReplyState::peer_gone() {
  std::function<void()> tell;  // none when the reply is finished
  {
    const std::lock_guard lock(mutex_);
    gone_ = true;
    ready_ = {};
    tell = std::exchange(tell_, nullptr);
  }
  if (tell) tell();
}

}  // namespace rw
