#include "libcore/bench/load/json_scan.h"

#include <charconv>
#include <cmath>
#include <cstdlib>

namespace rw {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

double to_double(std::string_view text) { return std::strtod(std::string(text).c_str(), nullptr); }

void append_utf8(std::string& out, uint32_t code) {
  const auto byte = [&](uint32_t b) { out += static_cast<char>(b); };
  if (code < 0x80) {
    byte(code);
  } else if (code < 0x800) {
    byte(0xC0 | code >> 6);
    byte(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    byte(0xE0 | code >> 12);
    byte(0x80 | (code >> 6 & 0x3F));
    byte(0x80 | (code & 0x3F));
  } else {
    byte(0xF0 | code >> 18);
    byte(0x80 | (code >> 12 & 0x3F));
    byte(0x80 | (code >> 6 & 0x3F));
    byte(0x80 | (code & 0x3F));
  }
}

}  // namespace

void JsonScan::blanks() {
  while (at_ != end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) ++at_;
}

bool JsonScan::finished() {
  blanks();
  return ok_ && at_ == end_;
}

char JsonScan::kind() {
  blanks();
  if (!ok_ || at_ == end_) return 0;
  return is_digit(*at_) || *at_ == '-' ? '0' : *at_;
}

bool JsonScan::take(char c) {
  blanks();
  if (!ok_ || at_ == end_ || *at_ != c) return ok_ = false;
  ++at_;
  return true;
}

bool JsonScan::open(char bracket) {
  if (++depth_ > kMaxDepth) ok_ = false;
  return take(bracket);
}

// An empty object or array.
bool JsonScan::closes(char bracket) {
  blanks();
  if (at_ == end_ || *at_ != bracket) return false;
  close(bracket);
  return true;
}

void JsonScan::close(char bracket) {
  take(bracket);
  --depth_;
}

bool JsonScan::comma() {
  blanks();
  if (at_ == end_ || *at_ != ',') return false;
  ++at_;
  return true;
}

bool JsonScan::take_code_unit(uint32_t& unit) {
  if (end_ - at_ < 4) return false;
  const auto [stop, error] = std::from_chars(at_, at_ + 4, unit, 16);
  if (error != std::errc() || stop != at_ + 4) return false;
  at_ += 4;
  return true;
}

// Behind the backslash.
bool JsonScan::take_escape(std::string* out) {
  if (at_ == end_) return false;
  const char c = *at_++;
  uint32_t code = 0;
  switch (c) {
    case '"':
    case '\\':
    case '/': code = static_cast<unsigned char>(c); break;
    case 'b': code = '\b'; break;
    case 'f': code = '\f'; break;
    case 'n': code = '\n'; break;
    case 'r': code = '\r'; break;
    case 't': code = '\t'; break;
    case 'u': {
      if (!take_code_unit(code) || (code >= 0xDC00 && code < 0xE000)) return false;
      if (code >= 0xD800 && code < 0xDC00) {  // the first of a pair
        uint32_t low = 0;
        if (end_ - at_ < 2 || at_[0] != '\\' || at_[1] != 'u') return false;
        at_ += 2;
        if (!take_code_unit(low) || low < 0xDC00 || low >= 0xE000) return false;
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
      }
      break;
    }
    default: return false;
  }
  if (out != nullptr) append_utf8(*out, code);
  return true;
}

// One character beyond ASCII: no overlong form, no surrogate, none beyond U+10FFFF (RFC 3629).
bool JsonScan::take_utf8() {
  const auto byte = [&](int64_t i) -> uint32_t {
    return end_ - at_ > i ? static_cast<unsigned char>(at_[i]) : uint32_t{0};
  };
  const auto follows = [&](int64_t i) { return (byte(i) & 0xC0) == 0x80; };
  const uint32_t first = byte(0), second = byte(1);
  int64_t n = 0;
  if (first >= 0xC2 && first < 0xE0) n = 2;
  else if (first >= 0xE0 && first < 0xF0 && !(first == 0xE0 && second < 0xA0) && !(first == 0xED && second >= 0xA0))
    n = 3;
  else if (first >= 0xF0 && first < 0xF5 && !(first == 0xF0 && second < 0x90) && !(first == 0xF4 && second >= 0x90))
    n = 4;
  if (n == 0) return false;
  for (int64_t i = 1; i < n; ++i)
    if (!follows(i)) return false;
  at_ += n;
  return true;
}

void JsonScan::take_string(std::string* out) {
  ++at_;  // the quote
  while (true) {
    const char* const begin = at_;
    while (at_ != end_ && *at_ != '"' && *at_ != '\\' && static_cast<unsigned char>(*at_) >= 0x20 &&
           static_cast<unsigned char>(*at_) < 0x80)
      ++at_;
    const bool more = at_ != end_ && static_cast<unsigned char>(*at_) >= 0x80;
    if (more && !take_utf8()) break;
    if (out != nullptr) out->append(begin, at_);
    if (more) continue;
    if (at_ == end_) break;
    const char c = *at_++;
    if (c == '"') return;
    if (c != '\\' || !take_escape(out)) break;
  }
  ok_ = false;
}

// A number that no double holds is an error, too: -?(0|[1-9][0-9]*)(.[0-9]+)?([eE][+-]?[0-9]+)?
std::string_view JsonScan::take_number() {
  const char* const begin = at_;
  const auto at = [&](char c) { return at_ != end_ && *at_ == c; };
  const auto digits = [&] {
    const char* const first = at_;
    while (at_ != end_ && is_digit(*at_)) ++at_;
    return at_ != first;
  };
  if (at('-')) ++at_;
  if (at('0')) ++at_;
  else if (!digits()) ok_ = false;
  if (ok_ && at('.')) {
    ++at_;
    if (!digits()) ok_ = false;
  }
  if (ok_ && (at('e') || at('E'))) {
    ++at_;
    if (at('+') || at('-')) ++at_;
    if (!digits()) ok_ = false;
  }
  const std::string_view text(begin, static_cast<size_t>(at_ - begin));
  if (ok_ && (text.size() > 300 || text.find_first_of("eE") != std::string_view::npos) &&
      !std::isfinite(to_double(text)))
    ok_ = false;
  return text;
}

void JsonScan::take_word(std::string_view word) {
  if (std::string_view(at_, static_cast<size_t>(end_ - at_)).starts_with(word)) at_ += word.size();
  else ok_ = false;
}

void JsonScan::string(std::string* out) {
  if (kind() == '"') take_string(out);
  else skip();
}

double JsonScan::number(double otherwise) {
  if (kind() != '0') {
    skip();
    return otherwise;
  }
  const std::string_view text = take_number();
  return ok_ ? to_double(text) : otherwise;
}

int64_t JsonScan::integer(int64_t otherwise) {
  if (kind() != '0') {
    skip();
    return otherwise;
  }
  const std::string_view text = take_number();
  if (!ok_) return otherwise;
  int64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && stop == text.data() + text.size()) return value;
  const double wide = to_double(text);  // "3e2", "7.0"
  return wide == std::floor(wide) && std::abs(wide) < 9e15 ? static_cast<int64_t>(wide) : otherwise;
}

void JsonScan::skip() {
  switch (kind()) {
    case '{': object([this](std::string_view) { skip(); }); break;
    case '[': array([this] { skip(); }); break;
    case '"': take_string(nullptr); break;
    case '0': take_number(); break;
    case 't': take_word("true"); break;
    case 'f': take_word("false"); break;
    case 'n': take_word("null"); break;
    default: ok_ = false;
  }
}

}  // namespace rw
