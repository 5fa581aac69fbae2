#include "libcore/net/http_session.h"

#include <exception>
#include <utility>

#include "libcore/base/log.h"

namespace rw {
namespace {

constexpr size_t kMaxPipelined = 64 << 10;  // bytes taken ahead while a reply is under way
constexpr size_t kKeptCapacity = 16 << 10;  // of a buffer, by an idle connection
constexpr double kLingerSeconds = 5;

void shrink(std::string& buffer) {
  buffer.clear();
  if (buffer.capacity() > kKeptCapacity) buffer = {};
}

}  // namespace

HttpSession::HttpSession(std::shared_ptr<HttpApp> app, std::string peer, std::function<void()> wake, double now)
    : app_(std::move(app)),
      peer_(std::move(peer)),
      wake_(std::make_shared<const std::function<void()>>(std::move(wake))),
      parser_(app_->spec.max_header_bytes, app_->spec.max_body_bytes),
      since_s_(now) {}

HttpSession::~HttpSession() { gone(); }

bool HttpSession::reading() const {
  if (peer_ended_ || state_ == State::over) return false;
  return state_ != State::replying || in_.size() < kMaxPipelined;
}

void HttpSession::receive(std::string_view bytes, double now) {
  if (state_ >= State::flushing) return;
  if (state_ == State::replying) {
    in_ += bytes;
    return;
  }
  if (in_.empty()) {
    in_ = bytes.substr(parse(bytes, now));
  } else {
    in_ += bytes;
    in_.erase(0, parse(in_, now));
  }
  advance(now);
}

size_t HttpSession::parse(std::string_view bytes, double now) {
  size_t at = 0;
  while (state_ == State::head || state_ == State::body) {
    if (state_ == State::head && !started_) {
      // RFC 9112 2.2: empty lines before a request are skipped.
      while (at < bytes.size() && (bytes[at] == '\r' || bytes[at] == '\n')) ++at;
      if (at == bytes.size()) break;
      started_ = true;
      since_s_ = first_byte_s_ = now;
    }
    const HttpParser::Step step = parser_.feed(bytes.substr(at));
    at += step.taken;
    count_body();
    switch (step.event) {
      case HttpParser::Event::more:
        if (state_ != State::body || app_->tally.body_bytes <= app_->spec.max_bodies_bytes) return at;
        end_with(503, "the server holds too many request bodies already", now);
        break;
      case HttpParser::Event::head: on_head(now); break;
      case HttpParser::Event::done: dispatch(); break;
      case HttpParser::Event::failed: end_with(parser_.status(), parser_.message(), now); break;
    }
  }
  return state_ >= State::flushing ? bytes.size() : at;
}

void HttpSession::count_body() {
  const int64_t size = static_cast<int64_t>(parser_.request().body.size());
  app_->tally.body_bytes += size - body_bytes_;
  body_bytes_ = size;
}

void HttpSession::on_head(double now) {
  HttpRequest& request = parser_.request();
  request.peer = peer_;
  request.received_s = first_byte_s_;
  state_ = State::body;
  since_s_ = now;
  close_ = false;
  ++app_->tally.requests;
  ++app_->tally.open_requests;
  const HttpReplyForm form{
      .head_only = request.method == "HEAD", .http_1_0 = parser_.http_1_0(), .keep_alive = parser_.keep_alive()};
  reply_ = std::make_shared<HttpReplyState>(app_, form, wake_);
  handle_ = std::make_shared<HttpReply::Impl>(reply_);
  if (app_->gate) {
    bool passed = false;
    try {
      passed = app_->gate(request, HttpReply(handle_));
    } catch (const std::exception& error) {
      log_error("{} {}: {}", request.method, request.path, error.what());
      reply_->fail(500, "the server failed to handle the request");
    }
    if (!passed) {
      close_ = parser_.body_follows();
      state_ = State::replying;
      handle_.reset();
      return;
    }
  }
  // A client that has sent its body already needs no invitation, but may get one (RFC 9110 10.1.1).
  if (parser_.expects_continue() && parser_.body_follows()) out_ += "HTTP/1.1 100 Continue\r\n\r\n";
}

void HttpSession::dispatch() {
  state_ = State::replying;
  const std::shared_ptr<HttpReply::Impl> handle = std::move(handle_);
  HttpRequest& request = parser_.request();
  const HttpRoutes::Found found = app_->routes.find(request.method, request.path);
  if (found.route != nullptr && found.route->where == HttpWhere::io) {
    run_handler(*found.route, request, handle);
  } else if (found.route != nullptr) {
    if (!app_->submit({.route = found.route,
                       .request = std::make_shared<const HttpRequest>(std::move(request)),
                       .reply = handle}))
      reply_->fail(503, "the server is busy", {{"retry-after", "1"}});
  } else if (request.method == "OPTIONS" && (!found.allow.empty() || request.path == "*")) {
    reply_->send(204, "", "", {{"allow", found.allow.empty() ? "GET, HEAD, POST, OPTIONS" : found.allow}});
  } else if (found.allow.empty()) {
    reply_->fail(404, "there is nothing at " + request.path);
  } else {
    reply_->fail(405, request.path + " takes " + found.allow + ", not " + request.method, {{"allow", found.allow}});
  }
}

void HttpSession::advance(double now) {
  if (state_ == State::replying && reply_->cut()) return cut();
  while (state_ == State::replying && output().empty()) {
    out_.clear();
    out_at_ = 0;
    const HttpReplyState::Taken taken = reply_->take(out_);
    close_ |= taken.close;
    if (!out_.empty()) since_s_ = now;
    if (!out_.empty()) return;
    if (!taken.finished) {
      if (peer_ended_) gone();
      return;
    }
    next_request(now);
  }
}

void HttpSession::next_request(double now) {
  end_request();
  shrink(out_);
  out_at_ = 0;
  if (close_ || app_->draining) return close_after_output(now);
  parser_.reset();
  state_ = State::head;
  started_ = false;
  since_s_ = now;
  if (in_.empty()) {
    if (in_.capacity() > kKeptCapacity) in_ = {};
    if (peer_ended_) state_ = State::over;
    return;
  }
  in_.erase(0, parse(in_, now));
  if (peer_ended_ && (state_ == State::head || state_ == State::body)) gone();
}

void HttpSession::end_request() {
  if (reply_ == nullptr) return;
  reply_.reset();
  handle_.reset();
  app_->tally.body_bytes -= std::exchange(body_bytes_, 0);
  --app_->tally.open_requests;
}

void HttpSession::end_with(int status, const std::string& message, double now) {
  ++(status == 408 ? app_->tally.timeouts : status < 500 ? app_->tally.bad_requests : app_->tally.refused);
  const std::string body = app_->refuse(status, message);
  const HttpHeaders retry{{"retry-after", "1"}};
  append_head(out_, {.status = status,
                     .content_type = "application/json",
                     .content_length = static_cast<int64_t>(body.size()),
                     .chunked = false,
                     .close = true,
                     .keep_alive_said = false,
                     .headers = status == 503 ? &retry : nullptr});
  out_ += body;
  if (reply_ != nullptr) reply_->peer_gone();
  close_after_output(now);
}

void HttpSession::close_after_output(double now) {
  end_request();
  in_ = {};
  since_s_ = now;
  state_ = !output().empty() ? State::flushing : peer_ended_ ? State::over : State::lingering;
}

void HttpSession::sent(size_t n, double now) {
  out_at_ += n;
  since_s_ = now;
  if (reply_ != nullptr) reply_->set_in_flight(output().size());
  if (!output().empty()) return;
  out_.clear();
  out_at_ = 0;
  if (state_ == State::flushing) close_after_output(now);
  else advance(now);
}

void HttpSession::peer_ended() {
  peer_ended_ = true;
  switch (state_) {
    case State::head:
    case State::body:
      if (!idle()) return gone();
      state_ = State::over;
      return;
    case State::replying: {
      // A peer that has hung up wants no reply, but for one that is on its way already.
      std::string more;
      const HttpReplyState::Taken taken = reply_->take(more);
      out_ += more;
      close_ |= taken.close;
      if (!taken.finished || reply_->cut()) gone();
      return;
    }
    case State::lingering: state_ = State::over; return;
    case State::flushing:
    case State::over: return;
  }
}

void HttpSession::gone() {
  if (state_ == State::over) return;
  state_ = State::over;
  broken_ = true;
  out_.clear();
  out_at_ = 0;
  if (reply_ != nullptr) reply_->peer_gone();
  end_request();
}

void HttpSession::cut() {
  ++app_->tally.cut_off;
  gone();
}

void HttpSession::tick(double now) {
  const HttpServerSpec& spec = app_->spec;
  const double age = now - since_s_;
  if (!output().empty() || state_ == State::flushing) {
    if (age > spec.write_timeout_s) {
      ++app_->tally.timeouts;
      cut();
    }
    return;
  }
  switch (state_) {
    case State::head:
      if (!started_) {
        if (age > spec.idle_timeout_s) close_after_output(now);
      } else if (now - first_byte_s_ > spec.header_timeout_s) {
        end_with(408, "the request's header did not come in time", now);
      }
      return;
    case State::body:
      if (age > spec.body_timeout_s) end_with(408, "the request's body did not come in time", now);
      return;
    case State::lingering:
      if (age > kLingerSeconds) state_ = State::over;
      return;
    case State::replying:
    case State::flushing:
    case State::over: return;
  }
}

void HttpSession::drain(double now) {
  if (idle()) close_after_output(now);
}

void HttpSession::refuse(double now) { end_with(503, "the server has too many connections", now); }

}  // namespace rw
