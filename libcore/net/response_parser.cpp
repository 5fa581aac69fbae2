#include "libcore/net/response_parser.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

namespace rw {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
std::string lowered(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), lower);
  return out;
}
bool is_blank(char c) { return c == ' ' || c == '\t'; }
std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

// Of a comma-separated list, in lower case; empty members are legal and are none.
bool list_holds(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    if (lowered(trimmed(list.substr(0, comma))) == word) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

std::optional<uint64_t> whole_number(std::string_view text, int base) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || value > uint64_t{INT64_MAX})
    return {};
  return value;
}

// What a message may show of a stranger's bytes.
std::string shown(std::string_view text) {
  std::string out(text.substr(0, 60));
  for (char& c : out)
    if (static_cast<unsigned char>(c) < ' ' || static_cast<unsigned char>(c) > 126) c = '?';
  return out;
}

}  // namespace

void HttpResponseParser::reset(Body body) {
  state_ = State::status;
  wanted_ = body;
  started_ = http_1_0_ = false;
  keep_alive_ = is_http_ = true;
  status_ = 0;
  left_ = 0;
  header_bytes_ = 0;
  headers_.clear();
  line_.clear();
  message_.clear();
}

const std::string* HttpResponseParser::header(std::string_view lower_case_name) const {
  for (const auto& [name, value] : headers_)
    if (name == lower_case_name) return &value;
  return nullptr;
}

HttpResponseParser::Step HttpResponseParser::broken(std::string message, size_t taken) {
  state_ = State::failed;
  message_ = std::move(message);
  return {.event = Event::failed, .taken = taken, .body = {}};
}

HttpResponseParser::Step HttpResponseParser::no_http(std::string_view line, size_t taken) {
  is_http_ = false;
  return broken(fmt::format("expected \"HTTP/1.1 STATUS\", found \"{}\"", shown(line)), taken);
}

// A line without its end, from line_ and `bytes`; false when its end has not come.
bool HttpResponseParser::take_line(std::string_view bytes, size_t& at, std::string_view& line) {
  const size_t end = bytes.find('\n', at);
  const std::string_view piece = bytes.substr(at, end - at);
  header_bytes_ += static_cast<int64_t>(piece.size()) + 1;
  at = end == std::string_view::npos ? bytes.size() : end + 1;
  if (end == std::string_view::npos) {
    --header_bytes_;
    if (header_bytes_ <= max_header_bytes_) line_ += piece;
    return false;
  }
  line = piece;
  if (!line_.empty()) {
    line_ += piece;
    line = line_;
  }
  if (line.ends_with('\r')) line.remove_suffix(1);
  return true;
}

bool HttpResponseParser::read_status(std::string_view line) {
  const bool http = line.starts_with("HTTP/1.") && line.size() >= 12 && (line[7] == '0' || line[7] == '1') &&
                    line[8] == ' ' && (line.size() == 12 || line[12] == ' ');
  const std::optional<uint64_t> status = http ? whole_number(line.substr(9, 3), 10) : std::nullopt;
  if (!status || *status < 100 || *status > 999) return false;
  status_ = static_cast<int>(*status);
  http_1_0_ = line[7] == '0';
  return true;
}

bool HttpResponseParser::read_header(std::string_view line) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || colon == 0 || is_blank(line.front()) || is_blank(line[colon - 1]))
    return false;
  headers_.emplace_back(lowered(line.substr(0, colon)), trimmed(line.substr(colon + 1)));
  return true;
}

bool HttpResponseParser::read_size(std::string_view line) {
  const std::optional<uint64_t> size = whole_number(trimmed(line.substr(0, line.find(';'))), 16);
  if (size) left_ = *size;
  return size.has_value();
}

// How the body ends (RFC 9112, 6.3); false when the head contradicts itself, with message_ set.
bool HttpResponseParser::decide_body() {
  keep_alive_ = !http_1_0_;
  std::optional<uint64_t> length;
  bool chunked = false;
  for (const auto& [name, value] : headers_) {
    if (name == "connection") {
      if (list_holds(value, "close")) keep_alive_ = false;
      else if (list_holds(value, "keep-alive")) keep_alive_ = true;
    } else if (name == "transfer-encoding") {
      if (lowered(value) != "chunked" || chunked) {
        message_ = fmt::format("expected the transfer-encoding chunked, found \"{}\"", shown(value));
        return false;
      }
      chunked = true;
    } else if (name == "content-length") {
      const std::optional<uint64_t> said = whole_number(value, 10);
      if (!said || (length && *length != *said)) {
        message_ = fmt::format("expected one content-length, found \"{}\"", shown(value));
        return false;
      }
      length = said;
    }
  }
  if (wanted_ == Body::none || status_ == 204 || status_ == 304) state_ = State::done;
  else if (chunked) state_ = State::size;
  else if (length) state_ = State::length, left_ = *length;
  else state_ = State::close, keep_alive_ = false;
  return true;
}

HttpResponseParser::Step HttpResponseParser::feed(std::string_view bytes) {
  size_t at = 0;
  std::string_view line;
  while (true) {
    switch (state_) {
      case State::status:
      case State::header:
      case State::size:
      case State::chunk_end:
      case State::trailer: {
        if (at == bytes.size()) return {Event::more, at, {}};
        started_ = true;
        const bool whole = take_line(bytes, at, line);
        if (header_bytes_ > max_header_bytes_)
          return broken(fmt::format("expected a head of at most {} bytes", max_header_bytes_), at);
        if (!whole) return {Event::more, at, {}};
        if (state_ == State::status) {
          if (!line.empty() && !read_status(line))  // an empty line before a reply is let through, as after a request
            return no_http(line, at);
          if (!line.empty()) state_ = State::header;
        } else if (state_ == State::header && line.empty()) {
          header_bytes_ = 0;
          line_.clear();
          if (status_ == 101) return broken("found 101, a switch to another protocol nobody asked for", at);
          if (status_ < 200) {
            state_ = State::status;
            headers_.clear();
            continue;
          }
          if (!decide_body()) return broken(std::move(message_), at);
          return {Event::head, at, {}};
        } else if (state_ == State::header) {
          if (!read_header(line)) return broken(fmt::format("expected a header, found \"{}\"", shown(line)), at);
        } else if (state_ == State::size) {
          if (!read_size(line)) return broken(fmt::format("expected a chunk's size, found \"{}\"", shown(line)), at);
          state_ = left_ == 0 ? State::trailer : State::chunk;
          header_bytes_ = 0;
        } else if (state_ == State::chunk_end) {
          if (!line.empty()) return broken(fmt::format("expected a chunk's end, found \"{}\"", shown(line)), at);
          state_ = State::size;
          header_bytes_ = 0;
        } else if (line.empty()) {
          state_ = State::done;
        }
        line_.clear();
        break;
      }
      case State::length:
      case State::chunk: {
        if (left_ == 0) {
          state_ = state_ == State::length ? State::done : State::chunk_end;
          break;
        }
        if (at == bytes.size()) return {Event::more, at, {}};
        const size_t n = static_cast<size_t>(std::min<uint64_t>(left_, bytes.size() - at));
        left_ -= n;
        return {Event::body, at + n, bytes.substr(at, n)};
      }
      case State::close:
        if (at == bytes.size()) return {Event::more, at, {}};
        return {Event::body, bytes.size(), bytes.substr(at)};
      case State::done: return {Event::done, at, {}};
      case State::failed: return {Event::failed, at, {}};
    }
  }
}

HttpResponseParser::Step HttpResponseParser::finish() {
  if (state_ == State::close || state_ == State::done) {
    state_ = State::done;
    return {Event::done, 0, {}};
  }
  if (state_ == State::failed) return {Event::failed, 0, {}};
  constexpr std::string_view kHttp = "HTTP/1.";
  if (state_ == State::status && !kHttp.starts_with(std::string_view(line_).substr(0, kHttp.size())))
    return no_http(line_, 0);
  if (!started_) return broken("the server closed the connection without a reply", 0);
  const bool in_head = state_ == State::status || state_ == State::header;
  return broken(in_head ? "the server closed the connection inside the reply's head"
                        : "the server closed the connection before the reply's end",
                0);
}

}  // namespace rw
